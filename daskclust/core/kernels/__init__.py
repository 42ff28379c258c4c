"""Pure functions of one block of rows.  They import each other, NumPy, SciPy and Numba only."""
