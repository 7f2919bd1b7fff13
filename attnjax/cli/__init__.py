"""The ``attnjax`` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 refused with one sentence on stderr, 2 unusable arguments, 75
another process of the run was lost (the same command again goes on), 129, 130 and 143
ended by a closed terminal, by Ctrl-C and by SIGTERM (training has saved its state).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from attnjax.cli.arguments import run
from attnjax.cli.configs import read_experiment
from attnjax.cli.lost_peer import LOST_PEER, LostPeerError
from attnjax.cli.training import INTERRUPTED

__all__ = ["INTERRUPTED", "main", "read_experiment"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
        arguments: without the program's name; None means those of the process.

    Returns:
        The exit code; see the module's docstring.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for noisy in ("jax", "orbax", "grain", "sacrebleu"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    # Orbax also prints the traceback of whatever it raises.
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    try:
        return run(arguments)
    except BrokenPipeError:
        # The reader of stdout is gone (`| head`): what it wanted is delivered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("attnjax: interrupted", file=sys.stderr)
        return INTERRUPTED
    except LostPeerError as error:
        print(f"attnjax: {error}", file=sys.stderr)
        return LOST_PEER
    except (ValueError, OSError, ArithmeticError, MemoryError) as error:
        print(f"attnjax: {_one_line(error)}", file=sys.stderr)
        return 1


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
