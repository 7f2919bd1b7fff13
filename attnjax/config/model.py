"""The models, and the attention in them."""

from __future__ import annotations

import dataclasses
from typing import Literal

from attnjax.config.checks import (
    require,
    require_at_most,
    require_positive,
    require_rate,
)

ScorerName = Literal["dot", "scaled_dot", "general", "additive", "concat", "location"]
AttentionName = Literal["none", ScorerName]

# Far beyond any model; a config that a stranger wrote must not exhaust the memory.
_MOST_LAYERS = 1_000
_MOST_UNITS = 1 << 20

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismConfig:
    """An attention mechanism; ``attnjax mechanisms`` lists them and what they read."""

    kind: MechanismName = "dense"  # a line of the catalog
    window: int = 128  # positions on each side (left only if causal) that are seen
    dilation: int = 1  # distance between the positions of a window
    block: int = 64  # positions that are kept or left out together
    num_global: int = 1  # first tokens or blocks that all see; last ones of a stride
    num_random: int = 2  # random blocks that each block sees
    rank: int = 64  # projected keys, or landmarks
    stride: int = 0  # positions per compressed key or pattern; 0 means about sqrt(n)
    chunk: int = 256  # positions that are computed at once
    clusters: int = 0  # of queries and keys; 0 means about sqrt(n)
    top_k: int = 32  # keys that each query keeps
    rounds: int = 2  # of hashing, or of k-means
    features: int = 128  # random features
    rows: int = 0  # of the grid a sequence is folded into; 0 means about sqrt(n)
    temperature: float = 1.0  # of a relaxed choice of one key
    redraw_every: int = 1_000  # training steps between new random features; 0: never
    seed: int = 0  # of fixed random choices (blocks, hashes)
    attend_to_self: bool = False  # in LSH attention, also beside other keys

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("window", "dilation", "block", "rank", "chunk", "top_k", "rounds"),
            *("features", "temperature"),
        )
        require_at_most(
            self,
            _MOST_UNITS,
            *("window", "dilation", "block", "num_global", "num_random", "rank"),
            *("stride", "chunk", "clusters", "top_k", "rounds", "features", "rows"),
        )
        for name in ("num_global", "num_random", "stride", "clusters", "rows"):
            value = getattr(self, name)
            require(value >= 0, f"MechanismConfig.{name} must be 0 or more: {value}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What an experiment asks the config of any model; a family may answer anew."""

    @property
    def reads_packed_rows(self) -> bool:
        """Whether the model keeps several sentences of one row apart."""
        return False

    @property
    def needs_joint_vocabulary(self) -> bool:
        """Whether source and target must have one vocabulary."""
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(ModelConfig):
    """The encoder-decoder of Vaswani et al. 2017, "Attention is all you need"."""

    width: int = 512  # d_model
    num_heads: int = 8  # of every attention; each has width / num_heads
    feed_forward_width: int = 2_048  # d_ff
    encoder_layers: int = 6  # blocks of self-attention and feed-forward
    decoder_layers: int = 6  # blocks of self-attention, cross-attention, feed-forward
    dropout: float = 0.1  # of sublayer outputs and embeddings
    attention_dropout: float = 0.0  # of the attention weights
    feed_forward_dropout: float = 0.0  # of the hidden feed-forward units
    activation: Literal["relu", "gelu", "swish"] = "relu"  # of the feed-forward units
    norm_position: Literal["pre", "post"] = "post"  # layer norm before or after
    # added to the tokens: sinusoids with sine and cosine in turn (the paper) or in two
    # halves (Marian), or learned; in each self-attention: rotary, relative (T5), alibi
    positions: PositionsName = "interleaved"
    max_positions: int = 512  # of learned positions, location scorer, linformer
    # all: one table for source, target and output; decoder: for target and output
    tied_embeddings: Literal["all", "decoder", "none"] = "all"
    scorer: ScorerName = "scaled_dot"  # of every dense multi-head attention
    encoder_attention: MechanismConfig = MechanismConfig()  # of the source to itself
    decoder_attention: MechanismConfig = MechanismConfig()  # of the target to itself
    cross_attention: MechanismConfig = MechanismConfig()  # of the target to the source
    remat: bool = False  # recompute layers in the backward pass to save memory

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("width", "num_heads", "feed_forward_width"),
            *("encoder_layers", "decoder_layers", "max_positions"),
        )
        require_at_most(self, _MOST_LAYERS, "encoder_layers", "decoder_layers")
        require_at_most(
            self, _MOST_UNITS, "width", "feed_forward_width", "max_positions"
        )
        require_rate(self, "dropout", "attention_dropout", "feed_forward_dropout")
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
    def reads_packed_rows(self) -> bool:
        """Attention tells segments apart."""
        return True

    @property
    def needs_joint_vocabulary(self) -> bool:
        """One table serves source and target."""
        return self.tied_embeddings == "all"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """Which keys a recurrent decoder's query weighs, once they are scored."""

    # all keys (soft), the best few (top_k), those around the query's position (local_m)
    # or around a predicted one (local_p), or a single key (hard, gumbel)
    kind: Literal["soft", "top_k", "local_m", "local_p", "hard", "gumbel"] = "soft"
    top_k: int = 8  # keys that each query keeps (top_k)
    window: int = 10  # keys on each side of the centre: D of Luong et al. 2015, 3.2
    temperature: float = 1.0  # of the relaxed choice, tau of Jang et al. 2017 (gumbel)
    # at test time the best key, or one drawn with its probability (hard, gumbel)
    test_choice: Literal["argmax", "sample"] = "argmax"
    seed: int = 0  # of what is drawn at test time
    # hard, all of Xu et al. 2015, sec. 4.1:
    soft_rate: float = 0.5  # training sentences that attend to all keys after all
    cost_weight: float = 1.0  # lambda_r, of the gradient by REINFORCE
    entropy_weight: float = 0.01  # lambda_e, of the entropy of the choices, in nats
    baseline_decay: float = 0.9  # of the moving average of the cost of a token

    def __post_init__(self) -> None:
        require_positive(self, "top_k", "window", "temperature")
        require_at_most(self, _MOST_UNITS, "top_k", "window")
        require_rate(self, "baseline_decay")
        require(
            0.0 <= self.soft_rate <= 1.0,
            f"SelectionConfig.soft_rate must be in [0, 1], got {self.soft_rate}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RNNConfig(ModelConfig):
    """Recurrent sequence-to-sequence models: Sutskever, Bahdanau, Luong."""

    cell: Literal["gru", "lstm"] = "gru"  # the recurrent unit of encoder and decoder
    embedding_width: int = 256  # of source and target tokens
    hidden_width: int = 256  # of the decoder, and of each encoder direction
    encoder_layers: int = 1  # recurrent layers
    decoder_layers: int = 1  # recurrent layers
    bidirectional: bool = True  # the encoder reads from both ends
    attention: AttentionName = "additive"  # the scorer; none is a plain seq2seq model
    attention_width: int = 256  # of the additive and concat scorers, and of local_p
    selection: SelectionConfig = SelectionConfig()  # which of the scored keys are used
    # the state that attends: before reading the token (Bahdanau), or after it (Luong)
    query: Literal["previous", "current"] = "previous"
    input_feeding: bool = False  # feed the attentional vector back (Luong, sec. 3.3)
    dropout: float = 0.2  # of embeddings, between layers and before the logits
    # all: one table for source, target and output; decoder: for target and output
    tied_embeddings: Literal["all", "decoder", "none"] = "none"
    max_source_tokens: int = 256  # table size of the location scorer, not a limit else

    def __post_init__(self) -> None:
        require_positive(
            self,
            *("embedding_width", "hidden_width", "encoder_layers", "decoder_layers"),
            *("attention_width", "max_source_tokens"),
        )
        require_at_most(self, _MOST_LAYERS, "encoder_layers", "decoder_layers")
        require_at_most(
            self,
            _MOST_UNITS,
            *("embedding_width", "hidden_width", "attention_width"),
            "max_source_tokens",
        )
        require_rate(self, "dropout")
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
    def needs_joint_vocabulary(self) -> bool:
        """One table serves source and target."""
        return self.tied_embeddings == "all"


# Every family that an experiment can name; `attnjax.models.registry` builds each.
AnyModelConfig = TransformerConfig | RNNConfig
