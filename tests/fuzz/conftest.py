"""What is no test here: parts of the program that changes files, which finds their imports."""

collect_ignore = ["changed_checkpoints.py", "changed_cubes.py"]
