"""The models, and the attention in them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal

from attnjax.fields import (
    Fraction,
    Options,
    ReadWith,
    Section,
    Units,
    Within,
    require,
    several,
)
from attnjax.ops.attend import Dense
from attnjax.ops.catalog import CATALOG, MECHANISMS, entry
from attnjax.ops.entry import SLOTS, Slot
from attnjax.ops.selection import SELECTIONS
from attnjax.types import Longest

if TYPE_CHECKING:
    Selection = Options
    Mechanisms = Options | tuple[Options, ...]
else:
    Selection = SELECTIONS.annotation
    Mechanisms = MECHANISMS.annotation

ScorerName = Literal["dot", "scaled_dot", "general", "additive", "concat", "location"]
AttentionName = Literal["none", ScorerName]

Layers = Annotated[int, Within(above=0, most=1_000)]
PositionsName = Literal[
    "interleaved", "halves", "learned", "rotary", "relative", "alibi", "none"
]

_ATTENTIONS = (
    "encoder_attention.kind",
    "decoder_attention.kind",
    "cross_attention.kind",
)
_SCORED = tuple(kind for kind, line in CATALOG.items() if line.accepts_score)
_AS_LONG = tuple(kind for kind, line in CATALOG.items() if line.max_keys != "unread")
_WITH_SCORES = ReadWith({path: _SCORED for path in _ATTENTIONS})
_LONGEST = ReadWith(
    {
        "positions": ("learned",),
        "scorer": ("location",),
        **{path: _AS_LONG for path in _ATTENTIONS},
    }
)
_WITH_LAYER = ReadWith(
    {"attention": ("additive", "concat"), "selection.kind": ("local_p",)}
)
_BY_TABLE = ReadWith({"attention": ("location",)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What an experiment asks the config of any model; a family may answer anew."""

    @property
    def state_width(self) -> int | None:
        """What the noam schedule takes for d_model; None if nothing stands for it."""
        return None

    @property
    def reads_packed_rows(self) -> bool:
        """Whether the model keeps several sentences of one row apart."""
        return False

    @property
    def needs_joint_vocabulary(self) -> bool:
        """Whether source and target must have one vocabulary."""
        return False

    @property
    def longest(self) -> Longest:
        """The longest sentences that a model can take."""
        return Longest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """The encoder-decoder of Vaswani et al. 2017, "Attention is all you need"."""

    width: Units = 512  # d_model
    num_heads: Units = 8  # of every attention; each has width / num_heads
    feed_forward_width: Units = 2_048  # d_ff
    encoder_layers: Layers = 6  # blocks of self-attention and feed-forward
    # blocks of self-attention, cross-attention, feed-forward
    decoder_layers: Layers = 6
    dropout: Fraction = 0.1  # of sublayer outputs and embeddings
    # of the attention weights (dense attention)
    attention_dropout: Annotated[Fraction, _WITH_SCORES] = 0.0
    feed_forward_dropout: Fraction = 0.0  # of the hidden feed-forward units
    activation: Literal["relu", "gelu", "swish"] = "relu"  # of the feed-forward units
    norm_position: Literal["pre", "post"] = "post"  # layer norm before or after
    # added to the tokens: sinusoids with sine and cosine in turn (the paper) or in two
    # halves (Marian), or learned; in each self-attention: rotary, relative (T5), alibi
    positions: PositionsName = "interleaved"
    # longest sequence of learned positions, the location scorer and mechanisms whose
    # arrays or patterns depend on it
    max_positions: Annotated[Units, _LONGEST] = 512
    # all: one table for source, target and output; decoder: for target and output
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    # of every dense multi-head attention
    scorer: Annotated[ScorerName, _WITH_SCORES] = "scaled_dot"
    # mechanisms of a line of the catalog each, or several that the layers take in turn:
    encoder_attention: Mechanisms = Dense()  # attention of the source to itself
    decoder_attention: Mechanisms = Dense()  # attention of the target to itself
    cross_attention: Mechanisms = Dense()  # attention of the target to the source
    remat: bool = False  # recompute layers in the backward pass to save memory

    def __post_init__(self) -> None:
        super().__post_init__()
        fitting = max(self.num_heads, self.width - self.width % self.num_heads)
        require(
            self.width % self.num_heads == 0,
            f"width must be a multiple of num_heads, got width={self.width}, "
            f"num_heads={self.num_heads}; width={fitting} would fit.",
        )
        require(
            self.width % 2 == 0,
            f"width must be even for the sinusoids, got {self.width}.",
        )
        require(
            self.positions != "rotary" or self.width // self.num_heads % 2 == 0,
            "rotary positions turn pairs of channels and need an even head width, got "
            f"width / num_heads = {self.width // self.num_heads}.",
        )
        for slot in SLOTS:
            pattern = len(several(self._mechanisms(slot)))
            require(
                1 <= pattern <= self._layers(slot),
                f"{slot}_attention takes one mechanism, or at most one for each of the "
                f"{self._layers(slot)} layers, which are repeated; got {pattern}.",
            )

    def mechanism(self, slot: Slot, layer: int) -> Options:
        """Chooses the mechanism of a layer: those of a slot are taken in turn.

        Args:
            slot: "encoder", "decoder" (its self-attention) or "cross".
            layer: index, from 0.

        Returns:
            Its options, by which `attnjax.ops.catalog.entry` finds it.
        """
        pattern = several(self._mechanisms(slot))
        return pattern[layer % len(pattern)]

    def _mechanisms(self, slot: Slot) -> Mechanisms:
        return {
            "encoder": self.encoder_attention,
            "decoder": self.decoder_attention,
            "cross": self.cross_attention,
        }[slot]

    def _layers(self, slot: Slot) -> int:
        return self.encoder_layers if slot == "encoder" else self.decoder_layers

    @property
    def state_width(self) -> int:
        """The model's d_model."""
        return self.width

    @property
    def reads_packed_rows(self) -> bool:
        """Attention tells segments apart."""
        return True

    @property
    def needs_joint_vocabulary(self) -> bool:
        """One table serves source and target."""
        return self.tied_embeddings == "all"

    @property
    def longest(self) -> Longest:
        """Learned positions, the location scorer and some mechanisms have tables."""
        endless, most = Longest(), self.max_positions

        def ends(slot: Slot) -> bool:
            lines = [entry(each) for each in several(self._mechanisms(slot))]
            return self.positions == "learned" or any(
                line.max_keys == "limit"
                or (line.accepts_score and self.scorer == "location")
                for line in lines
            )

        reads, writes = ends("encoder") or ends("cross"), ends("decoder")
        return Longest(
            most if reads else endless.source,
            most if writes else endless.target,
            "model.max_positions",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RNNConfig(ModelConfig):
    """Recurrent sequence-to-sequence models: Sutskever, Bahdanau, Luong."""

    cell: Literal["gru", "lstm"] = "gru"  # the recurrent unit of encoder and decoder
    embedding_width: Units = 256  # of source and target tokens
    hidden_width: Units = 256  # of the decoder, and of each encoder direction
    encoder_layers: Layers = 1  # recurrent layers
    decoder_layers: Layers = 1  # recurrent layers
    bidirectional: bool = True  # the encoder reads from both ends
    attention: AttentionName = "additive"  # the scorer; none is a plain seq2seq model
    # of the additive and concat scorers, and of local_p
    attention_width: Annotated[Units, _WITH_LAYER] = 256
    selection: Selection = Dense()  # keys that are used, once all are scored
    # the state that attends: before reading the token (Bahdanau), or after it (Luong)
    query: Literal["previous", "current"] = "previous"
    input_feeding: bool = False  # feed the attentional vector back (Luong, sec. 3.3)
    dropout: Fraction = 0.2  # of embeddings, between layers and before the logits
    # all: one table for source, target and output; decoder: for target and output
    tied_embeddings: Literal["all", "decoder", "none"] = "none"
    # table size of the location scorer
    max_source_tokens: Annotated[Units, _BY_TABLE] = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            not (self.input_feeding and self.query == "previous"),
            "input_feeding feeds the attentional vector of Luong et al., whose query "
            "is the current state; set query='current'.",
        )
        require(
            not (self.input_feeding and self.attention == "none"),
            "input_feeding needs an attention; set attention or input_feeding=False.",
        )
        require(
            isinstance(self.selection, Dense) or self.attention != "none",
            f"selection {SELECTIONS.name(self.selection)} chooses among scored keys, "
            "and attention 'none' scores none; set attention, or selection soft.",
        )

    @property
    def state_width(self) -> int:
        """The width of the decoder's state."""
        return self.hidden_width

    @property
    def needs_joint_vocabulary(self) -> bool:
        """One table serves source and target."""
        return self.tied_embeddings == "all"

    @property
    def longest(self) -> Longest:
        """The location scorer has a table of source positions."""
        if self.attention != "location":
            return Longest()
        return Longest(source=self.max_source_tokens, setting="model.max_source_tokens")


# Every family that an experiment can name; `attnjax.models.registry` builds each.
AnyModelConfig = TransformerConfig | RNNConfig
