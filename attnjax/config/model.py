"""The models, and the attention in them."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from attnjax.fields import (
    CountOrZero,
    Fraction,
    NotNegative,
    ReadWith,
    Section,
    Seed,
    Within,
    require,
)
from attnjax.types import Longest

ScorerName = Literal["dot", "scaled_dot", "general", "additive", "concat", "location"]
AttentionName = Literal["none", ScorerName]

# Far beyond any model; a config that a stranger wrote must not exhaust the memory.
Layers = Annotated[int, Within(above=0, most=1_000)]
Units = Annotated[int, Within(above=0, most=1 << 20)]
UnitsOrZero = Annotated[int, Within(least=0, most=1 << 20)]
# Scores that are divided by less would overflow.
Temperature = Annotated[float, Within(least=1e-6)]

MechanismName = Literal[
    "dense",
    "chunked",
    "linformer",
    "nystrom",
    "memory_compressed",
    "routing",
    "clustered",
    "axial",
    "sliding_window",
    "local_global",
    "strided",
    "fixed",
    "block_sparse",
    "hard",
    "gumbel",
    "top_k",
    "lsh",
    "linear",
    "favor",
]
PositionsName = Literal[
    "interleaved", "halves", "learned", "rotary", "relative", "alibi", "none"
]

_ATTENTIONS = (
    "encoder_attention.kind",
    "decoder_attention.kind",
    "cross_attention.kind",
)
_DENSE = ReadWith({path: ("dense",) for path in _ATTENTIONS})
# What these mechanisms own, or where theirs cut, depends on the longest sequence.
_AS_LONG = ("linformer", "strided", "fixed", "routing")
_LONGEST = ReadWith(
    {
        "positions": ("learned",),
        "scorer": ("location",),
        **{path: _AS_LONG for path in _ATTENTIONS},
    }
)
_TOP_K = ReadWith({"kind": ("top_k",)})
_LOCAL = ReadWith({"kind": ("local_m", "local_p")})
_RELAXED = ReadWith({"kind": ("gumbel",)})
_ONE_KEY = ReadWith({"kind": ("hard", "gumbel")})
_SAMPLED = ReadWith({"test_choice": ("sample",)})
_HARD = ReadWith({"kind": ("hard",)})
_WITH_LAYER = ReadWith(
    {"attention": ("additive", "concat"), "selection.kind": ("local_p",)}
)
_BY_TABLE = ReadWith({"attention": ("location",)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig(Section):
    """An attention mechanism; ``attnjax mechanisms`` lists them and what they read."""

    kind: MechanismName = "dense"  # a line of the catalog
    window: Units = 128  # positions on each side (left only if causal) that are seen
    dilation: Units = 1  # distance between the positions of a window
    block: Units = 64  # positions that are kept or left out together
    # first tokens or blocks that all see; last ones of a stride
    num_global: UnitsOrZero = 1
    num_random: UnitsOrZero = 2  # random blocks that each block sees
    rank: Units = 64  # projected keys, or landmarks
    # positions per compressed key (0: 3, the paper's), or of a pattern with a period
    # (0: the square root of max_positions)
    stride: UnitsOrZero = 0
    chunk: Units = 256  # positions that are computed at once
    # of queries and keys; 0: about the square root of each sentence's own length, in
    # routing of max_positions
    clusters: UnitsOrZero = 0
    top_k: Units = 32  # keys that each query keeps
    rounds: Units = 2  # of hashing, or of k-means
    features: Units = 128  # random features
    # of the grid that a sentence is folded into; 0: the square root of its own length
    rows: UnitsOrZero = 0
    temperature: Temperature = 1.0  # of a relaxed choice of one key
    # training steps between new random features; 0: never
    redraw_every: CountOrZero = 1_000
    seed: Seed = 0  # of fixed random choices (blocks, hashes)
    attend_to_self: bool = False  # in LSH attention, also beside other keys


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
    attention_dropout: Annotated[Fraction, _DENSE] = 0.0
    feed_forward_dropout: Fraction = 0.0  # of the hidden feed-forward units
    activation: Literal["relu", "gelu", "swish"] = "relu"  # of the feed-forward units
    norm_position: Literal["pre", "post"] = "post"  # layer norm before or after
    # added to the tokens: sinusoids with sine and cosine in turn (the paper) or in two
    # halves (Marian), or learned; in each self-attention: rotary, relative (T5), alibi
    positions: PositionsName = "interleaved"
    # of learned positions, location scorer, linformer, strided, fixed, routing
    max_positions: Annotated[Units, _LONGEST] = 512
    # all: one table for source, target and output; decoder: for target and output
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    # of every dense multi-head attention
    scorer: Annotated[ScorerName, _DENSE] = "scaled_dot"
    encoder_attention: MechanismConfig = MechanismConfig()  # of the source to itself
    decoder_attention: MechanismConfig = MechanismConfig()  # of the target to itself
    cross_attention: MechanismConfig = MechanismConfig()  # of the target to the source
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
        """Learned positions, the location scorer and linformer have tables."""
        endless, most = Longest(), self.max_positions
        over_sources = self.encoder_attention, self.cross_attention
        everywhere = self.positions == "learned"
        tables = {"linformer"} | ({"dense"} if self.scorer == "location" else set())
        reads = everywhere or any(each.kind in tables for each in over_sources)
        writes = everywhere or self.decoder_attention.kind in tables
        return Longest(
            most if reads else endless.source,
            most if writes else endless.target,
            "model.max_positions",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig(Section):
    """Which keys a recurrent decoder's query weighs, once they are scored."""

    # all keys (soft), the best few (top_k), those around the query's position (local_m)
    # or around a predicted one (local_p), or a single key (hard, gumbel)
    kind: Literal["soft", "top_k", "local_m", "local_p", "hard", "gumbel"] = "soft"
    top_k: Annotated[Units, _TOP_K] = 8  # keys that each query keeps (top_k)
    # keys on each side of the centre: D of Luong et al. 2015, 3.2 (local_m, local_p)
    window: Annotated[Units, _LOCAL] = 10
    # of the relaxed choice, tau of Jang et al. 2017 (gumbel)
    temperature: Annotated[Temperature, _RELAXED] = 1.0
    # at test time the best key, or one drawn with its probability (hard, gumbel)
    test_choice: Annotated[Literal["argmax", "sample"], _ONE_KEY] = "argmax"
    # of what is drawn at test time (hard, gumbel)
    seed: Annotated[Seed, _ONE_KEY, _SAMPLED] = 0
    # hard, all of Xu et al. 2015, sec. 4.1:
    # training sentences that attend to all keys after all
    soft_rate: Annotated[float, Within(least=0, most=1), _HARD] = 0.5
    # lambda_r, of the gradient by REINFORCE
    cost_weight: Annotated[NotNegative, _HARD] = 1.0
    # lambda_e, of the entropy of the choices, in nats
    entropy_weight: Annotated[NotNegative, _HARD] = 0.01
    # of the moving average of the cost of a token
    baseline_decay: Annotated[Fraction, _HARD] = 0.9


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
    selection: SelectionConfig = SelectionConfig()  # which of the scored keys are used
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
            self.selection.kind == "soft" or self.attention != "none",
            f"selection {self.selection.kind} chooses among scored keys, and attention "
            "'none' scores none; set attention, or selection soft.",
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
