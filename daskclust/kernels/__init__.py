"""Pure functions on one block: NumPy, SciPy and Numba, nothing else."""
