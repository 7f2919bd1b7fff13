"""An experiment as frozen dataclasses, checked at birth.

Every field carries its unit and meaning beside it, which is also the text of
``python train.py --config FILE --help``. `attnjax.config_json` stores and reads them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

ScorerName = Literal["dot", "scaled_dot", "general", "additive", "concat", "location"]
AttentionName = Literal["none", ScorerName]

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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _require_positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(
            value > 0,
            f"{type(config).__name__}.{name} must be greater than 0, got {value}.",
        )


def _require_rate(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(
            0.0 <= value < 1.0,
            f"{type(config).__name__}.{name} must be in [0, 1), got {value}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CLDRSource:
    """Phrases of the Unicode CLDR in two locales (package babel); needs no download."""

    train_pairs: int = 40_000  # distinct sentence pairs
    valid_pairs: int = 1_000  # pairs that are not among the training pairs
    test_pairs: int = 1_000  # pairs that are in neither of the two
    max_words: int = 60  # the longest sentence, in words of the source side
    seed: int = 0  # of the generator, apart from the training seed

    def __post_init__(self) -> None:
        _require_positive(self, "train_pairs", "valid_pairs", "test_pairs", "max_words")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilesSource:
    """Parallel text: line i of one file translates line i of the other.

    A path is a prefix; ``.<language>`` and optionally ``.gz`` or ``.xz`` follow it, so
    ``corpus/train`` names ``corpus/train.de`` and ``corpus/train.en``.
    """

    train: Path  # path prefix of the training pairs
    valid: Path  # path prefix of the validation pairs
    test: Path  # path prefix of the test pairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TFDSSource:
    """A translation set of tensorflow-datasets, read without TensorFlow."""

    name: str = "wmt14_translate/de-en"  # as in the catalog of tensorflow-datasets
    data_dir: Path | None = None  # prepared sets; None means ~/tensorflow_datasets
    manual_dir: Path | None = None  # archives that were downloaded by hand
    train_split: str = "train"  # slices such as train[:10%] are allowed
    valid_split: str = "validation"  # scored during training
    test_split: str = "test"  # scored by eval.py


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """How text becomes tokens; trained on training pairs, kept in the run folder."""

    # subwords of SentencePiece (bpe, unigram), words between spaces, or characters
    kind: Literal["bpe", "unigram", "word", "char"] = "bpe"
    vocab_size: int = 8_000  # of each vocabulary; an upper bound for word and char
    joint: bool = True  # one vocabulary for both languages
    byte_fallback: bool = True  # unknown characters as bytes (bpe, unigram)
    normalization: Literal["identity", "nmt_nfkc"] = "identity"  # bpe, unigram
    max_sentences: int = 1_000_000  # sentences of each side to train on

    def __post_init__(self) -> None:
        _require_positive(self, "max_sentences")
        _require(
            self.vocab_size >= 5,
            f"vocab_size must hold the 4 special tokens and more, got {self.vocab_size}"
            "; 1000 to 40000 are usual.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where sentence pairs come from and how they are batched."""

    # CLDR, text files or tensorflow-datasets; its class is chosen in the config file
    source: CLDRSource | TextFilesSource | TFDSSource
    source_language: str = "de"  # translate from
    target_language: str = "en"  # translate to
    tokenizer: TokenizerConfig = TokenizerConfig()
    # lengths that a side may be padded to, in tokens with </s>; longer training pairs
    # are dropped and counted
    bucket_lengths: tuple[int, ...] = (
        *(8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64, 72, 80, 96, 112, 128),
    )
    # pairs of such lengths in use, each compiled once, chosen so that training pairs
    # need least padding
    bucket_shapes: int = 16
    tokens_per_batch: int = 4_096  # padded tokens of the longer side, over all devices
    rows_multiple: int = 8  # rows of each batch are a multiple of this
    packing: bool = False  # several pairs in one row of the longest bucket length
    shuffle_buffer_batches: int = 64  # batches that are bucketed together

    def __post_init__(self) -> None:
        _require_positive(
            self,
            *("bucket_shapes", "tokens_per_batch", "rows_multiple"),
            "shuffle_buffer_batches",
        )
        lengths = self.bucket_lengths
        _require(
            len(lengths) > 0 and lengths[0] > 1 and sorted(set(lengths)) == [*lengths],
            f"bucket_lengths must be rising lengths > 1, got {lengths}.",
        )
        longest = lengths[-1] * self.rows_multiple
        _require(
            self.tokens_per_batch >= longest,
            f"tokens_per_batch must hold {self.rows_multiple} rows of "
            f"{lengths[-1]} tokens, got {self.tokens_per_batch}; {longest} would do.",
        )
        _require(
            self.source_language != self.target_language,
            f"source_language and target_language are both {self.source_language!r}; "
            "name two languages.",
        )


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
        _require_positive(
            self,
            *("window", "dilation", "block", "rank", "chunk", "top_k", "rounds"),
            *("features", "temperature"),
        )
        for name in ("num_global", "num_random", "stride", "clusters", "rows"):
            value = getattr(self, name)
            _require(value >= 0, f"MechanismConfig.{name} must be 0 or more: {value}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
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
        _require_positive(
            self,
            *("width", "num_heads", "feed_forward_width"),
            *("encoder_layers", "decoder_layers", "max_positions"),
        )
        _require_rate(self, "dropout", "attention_dropout", "feed_forward_dropout")
        fitting = max(self.num_heads, self.width - self.width % self.num_heads)
        _require(
            self.width % self.num_heads == 0,
            f"width must be a multiple of num_heads, got width={self.width}, "
            f"num_heads={self.num_heads}; width={fitting} would fit.",
        )
        _require(
            self.width % 2 == 0,
            f"width must be even for the sinusoids, got {self.width}.",
        )
        _require(
            self.positions != "rotary" or self.width // self.num_heads % 2 == 0,
            "rotary positions turn pairs of channels and need an even head width, got "
            f"width / num_heads = {self.width // self.num_heads}.",
        )


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
        _require_positive(self, "top_k", "window", "temperature")
        _require_rate(self, "baseline_decay")
        _require(
            0.0 <= self.soft_rate <= 1.0,
            f"SelectionConfig.soft_rate must be in [0, 1], got {self.soft_rate}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RNNConfig:
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
        _require_positive(
            self,
            *("embedding_width", "hidden_width", "encoder_layers", "decoder_layers"),
            *("attention_width", "max_source_tokens"),
        )
        _require_rate(self, "dropout")
        _require(
            not (self.input_feeding and self.query == "previous"),
            "input_feeding feeds the attentional vector of Luong et al., whose query "
            "is the current state; set query='current'.",
        )
        _require(
            not (self.input_feeding and self.attention == "none"),
            "input_feeding needs an attention; set attention or input_feeding=False.",
        )
        _require(
            self.selection.kind == "soft" or self.attention != "none",
            f"selection {self.selection.kind} chooses among scored keys, and attention "
            "'none' scores none; set attention, or selection soft.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """The learning rate of update 1, 2, ...; the peak is at update = warmup_steps."""

    # after the warm-up: noam and rsqrt fall as 1/sqrt(update), cosine to `final`
    kind: Literal["noam", "rsqrt", "cosine", "constant"] = "rsqrt"
    peak: float = 1e-3  # learning rate at its highest; noam: the factor, 1 in the paper
    warmup_steps: int = 1_000  # updates of linear warm-up; 0 or 1 means none
    width: int = 512  # d_model of noam
    final: float = 0.0  # learning rate at the end of cosine

    def __post_init__(self) -> None:
        _require_positive(self, "peak", "width")
        _require(
            self.warmup_steps >= 0,
            f"warmup_steps must be 0 or more, got {self.warmup_steps}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule."""

    kind: Literal["adam", "adamw", "adafactor"] = "adam"  # the algorithm
    beta1: float = 0.9  # decay of the mean gradient (adam, adamw)
    beta2: float = 0.98  # decay of the mean squared gradient (adam, adamw)
    epsilon: float = 1e-9  # added to the root of the mean square (adam, adamw)
    weight_decay: float = 0.0  # adamw: of matrices only, not of biases and norms
    clip_norm: float | None = 1.0  # global gradient norm above which it is scaled
    schedule: ScheduleConfig = ScheduleConfig()

    def __post_init__(self) -> None:
        _require_rate(self, "beta1", "beta2")
        _require_positive(self, "epsilon")
        _require(
            self.clip_norm is None or self.clip_norm > 0,
            f"clip_norm must be greater than 0 or None, got {self.clip_norm}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The loop: how long, what precision, when to look and to save."""

    num_steps: int = 10_000  # optimiser updates
    accumulate_steps: int = 1  # batches per update
    label_smoothing: float = 0.1  # mass spread evenly over all classes
    # of the computation; weights, softmax, norms and loss stay float32
    precision: Literal["float32", "bfloat16"] = "float32"
    log_every: int = 50  # steps between log lines
    evaluate_every: int = 500  # steps between validations
    checkpoint_every: int = 500  # steps between checkpoints
    keep_checkpoints: int = 3  # the latest k; the best one is kept besides
    patience: int | None = None  # validations without a better score before stopping

    def __post_init__(self) -> None:
        _require_positive(
            self,
            *("num_steps", "accumulate_steps", "log_every", "evaluate_every"),
            *("checkpoint_every", "keep_checkpoints"),
        )
        _require_rate(self, "label_smoothing")
        _require(
            self.patience is None or self.patience > 0,
            f"patience must be greater than 0 or None, got {self.patience}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How sentences are produced at test time."""

    beam_size: int = 4  # 1 is greedy search
    length_penalty: float = 0.6  # alpha of Wu et al. 2016, eq. 14
    max_extra_tokens: int = 50  # output limit beyond the source length, in tokens
    max_source_tokens: int = 1_024  # longer sources are cut, with a warning
    tokens_per_batch: int = 4_096  # padded source tokens decoded at once

    def __post_init__(self) -> None:
        _require_positive(
            self,
            *("beam_size", "max_extra_tokens", "max_source_tokens"),
            "tokens_per_batch",
        )
        _require(
            self.length_penalty >= 0,
            f"length_penalty must be 0 or more, got {self.length_penalty}.",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What validation during training does; the test set is always scored whole."""

    max_pairs: int = 1_000  # first pairs of the validation set that are translated
    beam_size: int = 1  # of validation during training

    def __post_init__(self) -> None:
        _require_positive(self, "max_pairs", "beam_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: data, model, training and search."""

    data: DataConfig
    model: TransformerConfig | RNNConfig
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = 0  # of initial weights, dropout and the order of batches
    workdir: Path = Path("runs/experiment")  # run folder: config, tokens, checkpoints

    def __post_init__(self) -> None:
        _require(
            not (self.data.packing and isinstance(self.model, RNNConfig)),
            "packing puts several sentences in one row, which a recurrent model would "
            "read as one; set data.packing=False.",
        )
        tied = self.model.tied_embeddings
        _require(
            self.data.tokenizer.joint or tied != "all",
            "tied_embeddings='all' needs one vocabulary for both languages; set "
            "data.tokenizer.joint=True or model.tied_embeddings='decoder'.",
        )
