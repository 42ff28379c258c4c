"""Search for the nearest center of every row in tiles of registers, and functions that use it."""
