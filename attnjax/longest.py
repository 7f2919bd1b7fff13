"""How long the sentences of a model may be; read by configs, which never load JAX."""

from __future__ import annotations

from typing import NamedTuple


class Longest(NamedTuple):
    """The longest sentences that a model can take, in tokens with ``</s>``.

    Attributes:
        source: tokens of a source.
        target: tokens of a target.
        setting: the config's field that ends them, for a message.
    """

    source: int = 1 << 30
    target: int = 1 << 30
    setting: str = ""
