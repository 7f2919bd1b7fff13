"""Pictures of where a model looks, of any sentence, layer and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attnjax.data.vocabulary import Tokenizer
from attnjax.data.word_pieces import Cutter, word_of_pieces
from attnjax.diagnostics.attention_map import AttentionMap, Head
from attnjax.diagnostics.attention_plot import plot_attention
from attnjax.evaluation.attention_alignment import word_weights
from attnjax.runs.alignment import cutter
from attnjax.tasks.outputs import Side, TokenAttention

if TYPE_CHECKING:
    from attnjax.runs.opening import TrainedRun

_AXES: dict[tuple[str, Side], str] = {
    ("queries", "source"): "source",
    ("keys", "source"): "source",
    ("queries", "target"): "target",
    ("keys", "target"): "target, so far",
}


class AttendedSentence(NamedTuple):
    """A sentence pair and all of its attention.

    Attributes:
        source: the source.
        target: its translation.
        layers: name to attention: the encoder's first, last that over the source.
    """

    source: str
    target: str
    layers: Mapping[str, AttentionMap]

    def layer(self, name: str | None) -> tuple[str, AttentionMap]:
        """The attention of one layer.

        Args:
            name: of the weights; None means the last layer over the source.

        Returns:
            Its name and the attention.

        Raises:
            ValueError: the model has no such attention, or none at all.
        """
        if not self.layers:
            raise ValueError("this model forms no attention weights: nothing to draw.")
        name = name or list(self.layers)[-1]
        if name not in self.layers:
            raise ValueError(
                f"no attention weights are called {name!r}; the model has "
                f"{', '.join(self.layers)}."
            )
        return name, self.layers[name]


def attended_sentences(
    run: TrainedRun,
    sources: Sequence[str],
    translations: Sequence[Sequence[int]],
    *,
    whole_words: bool = False,
) -> list[AttendedSentence]:
    """Where a model looks while it reads lines and is forced to write translations.

    Args:
        run: an opened run.
        sources: source lines.
        translations: token ids of as many translations.
        whole_words: merge subwords: what the pieces of a word get is added up, and
            where they look is averaged.

    Returns:
        As many sentences as lines.
    """
    translator = run.translator
    source_tokenizer, target_tokenizer = translator.tokenizers
    most = translator.max_source_tokens - 1  # one is </s>
    found = translator.attention_everywhere(run.variables, sources, translations)
    cuts = (cutter(each, "language") if whole_words else None for each in run.languages)
    source_cut, target_cut = cuts
    sentences = []
    for source, ids, named in zip(sources, translations, found, strict=True):
        own = [token for token in ids if token != target_tokenizer.eos_id]
        sides = {
            "source": _Tokens.of(
                source_tokenizer, source_tokenizer.encode(source)[:most], source_cut
            ),
            "target": _Tokens.of(target_tokenizer, own, target_cut),
        }
        layers = {name: _map(one, sides) for name, one in named.items()}
        target = target_tokenizer.decode(own)
        sentences.append(AttendedSentence(source, target, layers))
    return sentences


def draw(
    run: TrainedRun,
    source: str,
    path: Path,
    *,
    target: str | None = None,
    layer: str | None = None,
    head: Head | None = None,
    whole_words: bool = False,
) -> AttendedSentence:
    """Draws where a model looks in one sentence.

    Args:
        run: an opened run.
        source: the source line.
        path: the file to write, ``.png`` or ``.svg``.
        target: its translation; None means the model's own.
        layer: name of the weights, such as ``encoder/layer_0/self``; None means the
            last layer's over the source.
        head: its number, from 0, or "mean"; None draws all heads.
        whole_words: whether subwords are merged to words.

    Returns:
        What was drawn, with the attention of all other layers.

    Raises:
        ValueError: the model has no such layer or head, the line is empty, or the name
            of the file ends otherwise.
    """
    if not source.strip():
        raise ValueError("an empty line has no attention; give a sentence.")
    translator = run.translator
    if target is None:
        ids = translator.translate(run.variables, [source]).ids
    else:
        ids = translator.encode_targets([target])
    (sentence,) = attended_sentences(run, [source], ids, whole_words=whole_words)
    draw_sentence(sentence, path, layer=layer, head=head)
    return sentence


def draw_sentence(
    sentence: AttendedSentence,
    path: Path,
    *,
    layer: str | None = None,
    head: Head | None = None,
    title: str = "",
) -> None:
    """Draws one layer of what `attended_sentences` found.

    Args:
        sentence: with its attention.
        path: the file to write, ``.png`` or ``.svg``.
        layer: name of the weights; None means the last layer's over the source.
        head: its number, from 0, or "mean"; None draws all heads.
        title: what the picture is of, before the name of the layer.

    Raises:
        ValueError: as `draw`.
    """
    name, attention = sentence.layer(layer)
    if head is not None:
        attention = attention.of_head(head)
    plot_attention(
        attention,
        path,
        title=f"{title}: {name}" if title else name,
        sentences=(sentence.source, f"\N{RIGHTWARDS ARROW} {sentence.target}"),
    )


class _Tokens(NamedTuple):
    """The tokens of one side, with ``</s>``, and the groups that are drawn as one."""

    texts: list[str]  # of each group
    groups: list[int]  # of each token the index of its group

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, ids: Sequence[int], cut: Cutter | None
    ) -> _Tokens:
        if cut is not None:
            groups = _groups(word_of_pieces(tokenizer, ids, cut))
            texts = [
                tokenizer.decode(
                    [t for t, g in zip(ids, groups, strict=True) if g == n]
                )
                for n in range(max(groups, default=-1) + 1)
            ]
        else:
            texts, groups = tokenizer.pieces(ids), list(range(len(ids)))
        return cls([*map(str.strip, texts), "</s>"], [*groups, len(texts)])

    def before(self) -> _Tokens:
        """What was written before each token: ``<s>`` and all tokens but the last."""
        groups = [0, *(group + 1 for group in self.groups[:-1])]
        return _Tokens(["<s>", *self.texts[:-1]], groups)


def _groups(words: Sequence[int]) -> list[int]:
    """Indices without gaps or -1: a token of spaces belongs to the word after it."""
    groups = []
    following = max(words, default=-1)
    for word in reversed(words):
        following = following if word < 0 else word
        groups.append(max(following, 0))
    return groups[::-1]


def _map(attention: TokenAttention, sides: Mapping[str, _Tokens]) -> AttentionMap:
    queries, keys = sides[attention.queries], sides[attention.keys]
    if attention.keys == "target":
        keys = keys.before()
    return AttentionMap(
        weights=word_weights(attention.weights, keys.groups, queries.groups),
        queries=queries.texts,
        keys=keys.texts,
        query_axis=_AXES["queries", attention.queries],
        key_axis=_AXES["keys", attention.keys],
    )
