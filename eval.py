"""Scores a run folder: ``python eval.py --workdir runs/quickstart``.

Prints tables on a terminal and one JSON line (``--json``) elsewhere; says on stderr
where translations and pictures are.
"""

import sys

from attnjax.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
