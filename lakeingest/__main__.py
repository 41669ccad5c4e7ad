"""`python -m lakeingest` is the command `lakeingest`."""

import sys

from lakeingest.cli import main

if __name__ == "__main__":
    sys.exit(main())
