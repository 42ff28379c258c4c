"""Pure functions on one block.  They import each other, NumPy, SciPy and Numba only."""
