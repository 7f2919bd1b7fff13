"""What the catalog says of a mechanism, and how its options are bound."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from attnjax.fields import Options
from attnjax.ops.door import door, step_door
from attnjax.types import Array, Attended, PyTree

Fact = Literal["valid", "causal", "window", "segments"]
Slot = Literal["encoder", "decoder", "cross"]
FACTS: tuple[Fact, ...] = ("valid", "causal", "window", "segments")
SLOTS: tuple[Slot, ...] = ("encoder", "decoder", "cross")


class Sizes(NamedTuple):
    """What the shapes of a mechanism's own arrays depend on.

    Attributes:
        num_heads: H.
        key_width: K of one head.
        value_width: V of one head.
        max_keys: the longest key sequence.
    """

    num_heads: int
    key_width: int
    value_width: int
    max_keys: int


class Parameter(NamedTuple):
    """An array that a mechanism owns, before it exists.

    Attributes:
        shape: of the array, float32.
        init: ``(rng, shape) -> array``.
    """

    shape: tuple[int, ...]
    init: Callable[[Array, tuple[int, ...]], jax.Array]


class Incremental(NamedTuple):
    """A causal mechanism, one position at a time.

    Attributes:
        begin: ``(batch_size, max_tokens, sizes, dtype, **options) -> cache``; every
            leaf leads with the batch axis.
        step: ``(query [B, H, 1, K], key [B, H, 1, K], value [B, H, 1, V], cache,
            position [B], **options, **parameters) -> (context [B, H, 1, V], cache)``.
            ``position`` is that of the token in its row; ``bias`` and ``score`` are
            passed as well if the entry accepts them.
        state: the size of the cache in words, such as "window".
    """

    begin: Callable[..., PyTree]
    step: Callable[..., tuple[jax.Array, PyTree]]
    state: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the catalog.

    Attributes:
        attend: the pure function ``(query, key, value, mask, **options, **parameters)``
            to `Attended`, see `attnjax.types.Mechanism`.
        options: the class of its options, whose fields are keyword arguments of
            `attend`; it stands beside that function.
        from_sizes: option to the number that a layer takes where a config says 0.
            It must not follow from the length of a batch, which would make a sentence
            depend on what it is padded with.
        facts: what `attend` honours of a mask; it refuses the others.
        slots: where models may use it.
        max_keys: what it does with the longest sequence of a layer: nothing ("unread"),
            shapes or options follow from it ("read"), or its arrays end there as well,
            so that no sequence may be longer ("limit").
        refusal: why it may not be used in the other slots.
        limit: ``(number of keys) -> options`` with which it equals dense attention;
            None where no option makes it so, and ``limit_reason`` says why.
        limit_reason: see there.
        reference: the same in plain float64 numpy, see `attnjax.ops.references`; an
            entry without a limit needs one, since no other law knows its formula.
        cost: time and memory, n positions.
        memory_exponent: growth of the compiled temporary memory with n, at most.
        paper: authors, year, title.
        self_only: whether queries and keys must be the same positions (T = S).
        normalised: whether the weights of a row sum to 1, so that a constant value
            comes out as it is; no law asks it of the others.
        pairwise: whether each score is the dot product of one query and one key, so
            that rotary positions keep their meaning.
        shares_query_key: whether queries and keys come from one projection, keys
            brought to unit mean square.
        accepts_score: whether the model's scorer and the dropout of weights are passed,
            as ``score`` and ``dropout``; keys then come prepared by the scorer.
        accepts_bias: whether ``bias``, a function of the offset between key and query,
            is added to the scores; see `attnjax.ops.relative`.
        needs_rng: whether ``rng`` is passed in training (None otherwise).
        parameters: ``(sizes, **options) -> {name: Parameter}``, learned, passed to
            `attend` by name.
        buffers: the same for arrays that are not learned by gradients.
        update: ``(buffers, query, key, mask, rng, **options) -> buffers``, called
            once a training step, before `attend`.
        incremental: the one-step form; None if the mechanism cannot be causal.
    """

    attend: Callable[..., Attended]
    options: type[Options]
    from_sizes: Mapping[str, Callable[[Sizes], int]] = dataclasses.field(
        default_factory=dict
    )
    facts: tuple[Fact, ...] = FACTS
    slots: tuple[Slot, ...] = SLOTS
    max_keys: Literal["unread", "read", "limit"] = "unread"
    refusal: str = ""
    limit: Callable[[int], Mapping[str, Any]] | None = None
    limit_reason: str = ""
    reference: Callable[..., np.ndarray] | None = None
    cost: str
    memory_exponent: float
    paper: str
    self_only: bool = False
    normalised: bool = True
    pairwise: bool = True
    shares_query_key: bool = False
    accepts_score: bool = False
    accepts_bias: bool = False
    needs_rng: bool = False
    parameters: Callable[..., Mapping[str, Parameter]] | None = None
    buffers: Callable[..., Mapping[str, Parameter]] | None = None
    update: Callable[..., Mapping[str, Array]] | None = None
    incremental: Incremental | None = None

    def __post_init__(self) -> None:
        """Puts a door before the functions; see `attnjax.ops.door`."""
        object.__setattr__(self, "attend", door(self.attend))
        if self.incremental is not None:
            checked = step_door(self.incremental.step)
            incremental = self.incremental._replace(step=checked)
            object.__setattr__(self, "incremental", incremental)

    def chosen(
        self, options: Options | None = None, sizes: Sizes | None = None
    ) -> dict[str, Any]:
        """The options as keyword arguments.

        Args:
            options: of the class that the entry names; None means the defaults.
            sizes: of the layer, for what `from_sizes` lists; None leaves a 0 as it is.

        Returns:
            Keyword arguments for the functions of this entry.

        Raises:
            ValueError: if the options are those of another mechanism.
        """
        options = self.options() if options is None else options
        if type(options) is not self.options:
            raise ValueError(
                f"the mechanism of {self.paper} takes the options "
                f"{self.options.__name__}, got {options!r}."
            )
        chosen = {name: getattr(options, name) for name in self.options.names()}
        if sizes is not None:
            for name, number in self.from_sizes.items():
                chosen[name] = chosen[name] or number(sizes)
        return chosen

    def bind(
        self, options: Options | None = None, sizes: Sizes | None = None
    ) -> Callable[..., Attended]:
        """The mechanism with its options set.

        Args:
            options: as for `chosen`.
            sizes: as for `chosen`.

        Returns:
            ``(query, key, value, mask, **parameters) -> Attended``.
        """
        return functools.partial(self.attend, **self.chosen(options, sizes))

    def draw(
        self, rng: Array, sizes: Sizes, options: Options | None = None
    ) -> dict[str, jax.Array]:
        """Fresh parameters and buffers, for use without a layer.

        Args:
            rng: a PRNG key.
            sizes: heads and widths.
            options: as for `chosen`.

        Returns:
            Arrays by name, keyword arguments of `attend`; empty for most mechanisms.
        """
        drawn, chosen = {}, self.chosen(options, sizes)
        for make in (self.parameters, self.buffers):
            if make is not None:
                for name, (shape, init) in make(sizes, **chosen).items():
                    rng, own = jax.random.split(rng)
                    drawn[name] = init(own, shape)
        return drawn
