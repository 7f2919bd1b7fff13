"""Word alignments read off attention weights over subwords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from attnjax.types import Alignment, Array

LinkMethod = Literal["argmax"] | float


def word_weights(
    weights: Array, source_words: Sequence[int], target_words: Sequence[int]
) -> np.ndarray:
    """Merges subwords to words: sums over source pieces, means over target pieces.

    What a step gives to the pieces of a source word, it gives to the word; the pieces
    of a target word are as many steps, of which the word is the mean. Tokens outside
    all words (index -1) are left out, so that a row sums to what lay on words.

    Args:
        weights: ``[..., T, S]``, rows that sum to 1.
        source_words: For each of the S source tokens the index of its word, or -1.
        target_words: For each of the T target tokens the index of its word, or -1.

    Returns:
        ``[..., target words, source words]``, float64.

    Raises:
        ValueError: If the weights do not fit the tokens or are not finite, or an index
            is below -1.
    """
    weights_ts = np.asarray(weights, np.float64)
    expected = (len(target_words), len(source_words))
    if weights_ts.ndim < 2 or weights_ts.shape[-2:] != expected:
        raise ValueError(
            f"weights must be [..., T, S] with T, S = {expected} tokens, got shape "
            f"{weights_ts.shape}; pass the rows and columns of these tokens only."
        )
    if not np.isfinite(weights_ts).all():
        raise ValueError("attention weights must be finite, got NaN or infinity.")
    target_means = _membership(target_words)  # [target words, T]
    pieces = target_means.sum(axis=1, keepdims=True)
    return (
        target_means / np.maximum(pieces, 1) @ weights_ts @ _membership(source_words).T
    )


def links(
    weights: Array, method: LinkMethod = "argmax", *, allow_unaligned: bool = False
) -> Alignment:
    """Reads links off weights between words.

    With ``"argmax"`` each target word is linked to the source word of the largest
    weight, the first of equal ones; a target word without any weight stays unaligned.
    With a number each target word is linked to all source words of that weight or more,
    which may be none.

    Args:
        weights: ``[target words, source words]``, as `word_weights` returns them.
        method: ``"argmax"``, or the least weight of a link, above 0 and at most 1.
        allow_unaligned: With ``"argmax"``, leave a target word unaligned if more weight
            lies outside the source words (on ``</s>``, say) than on its best one: what
            its row lacks of 1.

    Returns:
        The links.

    Raises:
        ValueError: If the method is neither ``"argmax"`` nor such a number.

    Example:
        >>> sorted(links(np.array([[0.1, 0.9], [0.3, 0.2]])))
        [(0, 1), (1, 0)]
        >>> sorted(links(np.array([[0.1, 0.9], [0.3, 0.2]]), allow_unaligned=True))
        [(1, 0)]
        >>> sorted(links(np.array([[0.1, 0.9], [0.3, 0.2]]), 0.2))
        [(0, 1), (1, 0), (1, 1)]
    """
    weights_ts = np.asarray(weights)
    if method == "argmax":
        best = weights_ts.max(axis=1, initial=0.0)
        aligned = best > 0
        if allow_unaligned:
            aligned &= best >= 1 - weights_ts.sum(axis=1)
        return frozenset(
            (int(weights_ts[target].argmax()), int(target))
            for target in np.flatnonzero(aligned)
        )
    if isinstance(method, str) or not 0 < method <= 1:
        raise ValueError(
            "links are read by 'argmax' or by a least weight above 0 and at most 1, "
            f"got {method!r}."
        )
    return frozenset(
        (int(source), int(target))
        for target, source in np.argwhere(weights_ts >= method)
    )


def shifted(weights: Array) -> np.ndarray:
    """The reading one step later: row t is that of step t + 1.

    At that step target token t is the decoder's *input*. The last row, that of
    ``</s>``, has no step after it and becomes zeros.

    Args:
        weights: ``[..., T, S]``.

    Returns:
        ``[..., T, S]``.
    """
    weights_ts = np.asarray(weights)
    later_ts = np.zeros_like(weights_ts)
    later_ts[..., :-1, :] = weights_ts[..., 1:, :]
    return later_ts


def _membership(words: Sequence[int]) -> np.ndarray:
    """``[words, tokens]``, 1 where the token is a piece of the word."""
    indices = np.asarray(words, np.int64)
    if (indices < -1).any():
        raise ValueError(
            "words count from 0, and -1 means outside all words; got "
            f"{np.min(indices)}."
        )
    num_words = np.max(indices, initial=-1) + 1
    return np.equal.outer(np.arange(num_words), indices).astype(float)
