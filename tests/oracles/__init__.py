"""Slow, obviously right implementations that the package is compared with."""
