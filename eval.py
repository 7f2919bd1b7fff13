"""Scores a run folder: ``python eval.py --workdir runs/quickstart``.

Prints one JSON line on stdout; says on stderr where translations and pictures are.
"""

import sys

from attnjax.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
