"""`python -m reproduce`: the same as the console script."""

import sys

from reproduce.cli import main

if __name__ == "__main__":
    sys.exit(main())
