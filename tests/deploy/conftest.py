collect_ignore = ["_slurm.py"]
