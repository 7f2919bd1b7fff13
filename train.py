"""Trains a model: ``python train.py --config configs/quickstart.py [overrides]``.

Run the same command again to continue an interrupted run.
"""

import sys

from attnjax.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
