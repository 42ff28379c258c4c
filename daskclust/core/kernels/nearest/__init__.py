"""Nearest center of every row: the register-tiled search, and what follows from it."""
