"""``python -m attnjax`` is the ``attnjax`` command."""

import sys

from attnjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
