"""Pictures of sentences: whose tokens they show, as subwords and as words."""

import types

import numpy as np
import pytest

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import TokenizerPair, train_tokenizers
from attnjax.runs.drawing import attended_sentences, draw
from attnjax.tasks.outputs import TokenAttention

CORPUS = ParallelCorpus(["rot und rund"] * 9, ["red and round"] * 9, "here")
TOKENIZERS = {
    kind: train_tokenizers(CORPUS, TokenizerConfig(kind=kind, vocab_size=size))
    for kind, size in (("bpe", 275), ("char", 40))
}


class Run:
    """What drawing needs of a run, with weights that nobody computed."""

    def __init__(self, tokenizers: TokenizerPair) -> None:
        self.translator, self.variables = self, {}
        self.tokenizers = tokenizers
        self.max_source_tokens = 1_024
        self.languages = ("de", "en")

    def encode_targets(self, texts):
        target = self.tokenizers.target
        return [[*target.encode(text), target.eos_id] for text in texts]

    def translate(self, variables, lines):
        return types.SimpleNamespace(ids=self.encode_targets(["red"] * len(lines)))

    def attention_everywhere(self, variables, lines, translations):
        found = []
        for line, ids in zip(lines, translations, strict=True):
            sizes = {
                "source": len(self.tokenizers.source.encode(line)) + 1,
                "target": len([t for t in ids if t != self.tokenizers.target.eos_id])
                + 1,
            }
            found.append(
                {
                    name: TokenAttention(weights(sizes[q], sizes[k]), q, k)
                    for name, q, k in (
                        ("encoder/self", "source", "source"),
                        ("decoder/self", "target", "target"),
                        ("decoder/cross", "target", "source"),
                    )
                    if line.strip()
                }
            )
        return found


def weights(*shape):
    return np.random.default_rng(0).dirichlet(np.ones(shape[1]), (2, shape[0]))


@pytest.fixture(params=TOKENIZERS)
def run(request):
    return Run(TOKENIZERS[request.param])


def attended(run, whole_words, source="rot  und", target="red and"):
    (found,) = attended_sentences(
        run, [source], run.encode_targets([target]), whole_words=whole_words
    )
    return found


def test_subwords_are_those_of_the_tokenizer_with_the_ends(run):
    found = attended(run, whole_words=False)
    source = run.tokenizers.source
    pieces = [piece.strip() for piece in source.pieces(source.encode("rot  und"))]
    cross = found.layers["decoder/cross"]
    assert cross.keys == [*pieces, "</s>"]
    assert (found.source, found.target) == ("rot  und", "red and")
    among = found.layers["decoder/self"]
    assert among.queries == cross.queries
    assert among.keys == ["<s>", *cross.queries[:-1]]
    assert (among.query_axis, among.key_axis) == ("target", "target, so far")
    assert found.layers["encoder/self"].queries == cross.keys


def test_pieces_of_a_word_are_added_up_as_keys_and_averaged_as_queries(run):
    pieces, words = (
        attended(run, whole_words=merged).layers["decoder/cross"]
        for merged in (False, True)
    )
    assert words.keys == ["rot", "und", "</s>"]
    assert words.queries == ["red", "and", "</s>"]
    np.testing.assert_allclose(words.weights.sum(-1), 1.0)
    np.testing.assert_allclose(words.weights[:, -1, -1], pieces.weights[:, -1, -1])
    source = run.tokenizers.source
    first = len(source.encode("rot"))
    np.testing.assert_allclose(
        words.weights[:, -1, 0], pieces.weights[:, -1, :first].sum(-1)
    )
    first = len(run.tokenizers.target.encode("red"))
    np.testing.assert_allclose(
        words.weights[:, 0, -1], pieces.weights[:, :first, -1].mean(-1)
    )
    among = attended(run, whole_words=True).layers["decoder/self"]
    assert among.keys == ["<s>", "red", "and"]


def test_a_sentence_is_drawn_with_its_translation_or_a_given_one(run, tmp_path):
    for name, target in (("own", None), ("given", "red and round")):
        path = tmp_path / f"{name}.svg"
        drawn = draw(run, "rot", path, target=target, layer="encoder/self", head=1)
        text = path.read_text()
        assert drawn.target == (target or "red")
        for part in ("encoder/self", f"\N{RIGHTWARDS ARROW} {drawn.target}", "head 1"):
            assert part in text
        assert "head 0" not in text
    draw(run, "rot", tmp_path / "last.svg", whole_words=True)
    assert "decoder/cross" in (tmp_path / "last.svg").read_text()


@pytest.mark.parametrize(
    ("line", "options", "message"),
    [
        ("rot", {"layer": "decoder/layer_7"}, "the model has encoder/self, decoder"),
        ("rot", {"head": 2}, "heads 0 to 1"),
        (" ", {}, "an empty line has no attention"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(
    run, tmp_path, line, options, message
):
    with pytest.raises(ValueError, match=message):
        draw(run, line, tmp_path / "picture.png", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_line_beyond_the_limit_is_drawn_as_far_as_it_was_read(run):
    run.max_source_tokens = 4
    kept = 3
    ids = run.encode_targets(["red"])
    cut = TokenAttention(weights(len(ids[0]), kept + 1), "target", "source")
    run.attention_everywhere = lambda variables, lines, ids: [{"cross": cut}]
    (found,) = attended_sentences(run, ["rot und rund"], ids)
    source = run.tokenizers.source
    pieces = [p.strip() for p in source.pieces(source.encode("rot und rund"))]
    assert found.layers["cross"].keys == [*pieces[:kept], "</s>"]
