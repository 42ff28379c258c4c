"""Files and Zarr stores that appear under their name only when they are whole."""
