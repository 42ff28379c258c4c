"""``python -m daskclust``: the command line."""

import sys

from daskclust.app.cli import main

# Worker processes import this module again, under another name.
if __name__ == "__main__":
    sys.exit(main())
