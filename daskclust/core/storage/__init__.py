"""Files and Zarr stores that get their name only when they are complete."""
