"""Scripts that tests start are no tests, and need what only some of these have."""

from __future__ import annotations

collect_ignore = ["_image.py", "_s3.py", "_slurm.py"]
