"""The ``attnjax`` command: each subcommand is one call into the library.

Exit codes: 0 done, 1 refused with one sentence on stderr, 2 unusable arguments, 75
another process of the run was lost (the same command again goes on), 129, 130 and 143
ended by a closed terminal, by Ctrl-C and by SIGTERM (training has saved its state).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one subcommand.

    Args:
        arguments: without the program's name; None means those of the process.

    Returns:
        The exit code; see the module's docstring.
    """
    try:
        from attnjax.cli.noise import silence_libraries
        from attnjax.terminal import run_command
    except KeyboardInterrupt:  # what is imported there tells it from then on
        return 130
    given = list(sys.argv[1:] if arguments is None else arguments)
    silence_libraries()
    return run_command(lambda: _run(given))


def _run(arguments: list[str]) -> int:
    from attnjax.cli.arguments import run
    from attnjax.cli.lost_peer import LOST_PEER, LostPeerError
    from attnjax.terminal import tell, use_plain_log

    use_plain_log()
    try:
        return run(arguments)
    except LostPeerError as error:
        tell(f"attnjax: {error}")
        return LOST_PEER
