"""``attnjax mechanisms`` and ``attnjax bench``."""

from __future__ import annotations

import argparse


def mechanisms(options: argparse.Namespace) -> int:
    """Prints the catalog."""
    from attnjax.diagnostics.mechanisms import mechanism_page, mechanism_table

    print(mechanism_page() if options.markdown else mechanism_table() + "\n", end="")
    return 0


def bench(arguments: list[str]) -> int:
    """Measures attention; `attnjax.benchmarks.attention` reads the arguments."""
    from attnjax.benchmarks import attention

    attention.main(arguments)
    return 0
