"""Tokenizers: the identity where promised, specials never printed, saved and loaded."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.sentencepiece_tokenizer import SentencePieceTokenizer
from attnjax.data.tokenizers import (
    TokenizerPair,
    check_ids,
    has_tokenizers,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)

GERMAN = ["der kleine Hund schläft", "ein großer Baum", "übung macht den Meister"] * 7
ENGLISH = ["the small dog sleeps", "a tall tree", "practice makes perfect"] * 7
TEXT = ParallelCorpus(GERMAN, ENGLISH, "proverbs")
KINDS = ("bpe", "unigram", "word", "char")


def train(**fields):
    return train_tokenizers(TEXT, TokenizerConfig(**{"vocab_size": 400} | fields))


@pytest.fixture(scope="module")
def pairs():
    return {kind: train(kind=kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_training_text_comes_back(pairs, kind):
    pair = pairs[kind]
    for text in GERMAN[:3]:
        assert pair.source.decode(pair.source.encode(text)) == text
    for text in ENGLISH[:3]:
        assert pair.target.decode(pair.target.encode(text)) == text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize(
    "text",
    [
        *("small  tree", " begin", "end ", "Ａ１", "🤗", "\ufe30", "ǆ", " ⁇ ", "a\0b"),
        *("\u2028", "x\x85y", "\t", "</s>", "<pad>", "<0x41>", "übung", "", "日本語"),
    ],
)
def test_every_text_comes_back_exactly(pairs, kind, text):
    tokenizer = pairs[kind].source
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {0, 1, 2, 3} & set(ids)


@settings(max_examples=200)
@given(text=st.text(st.characters(exclude_characters="\n▁", codec="utf-8")))
def test_any_text_comes_back(pairs, text):
    tokenizer = pairs["bpe"].source
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_mark_of_a_space_is_the_documented_exception(pairs):
    tokenizer = pairs["bpe"].source
    assert tokenizer.decode(tokenizer.encode("▁tree")) == " tree"


def test_normalisation_only_if_asked_for():
    folded = train(normalization="nmt_nfkc").source
    assert folded.decode(folded.encode("Ａ１")) == "A1"


def test_without_bytes_the_unknown_is_named():
    tokenizer = train(byte_fallback=False, vocab_size=60).source
    assert tokenizer.decode(tokenizer.encode("der 🤗")) == "der <unk>"


def test_bytes_of_one_character_are_joined_before_decoding(pairs):
    tokenizer = pairs["bpe"].source
    ids = tokenizer.encode("ñ")  # not in the training text: two bytes
    assert tokenizer.pieces(ids)[-2:] == ["<0xC3>", "<0xB1>"]
    assert tokenizer.decode(ids) == "ñ"
    assert tokenizer.decode(ids[:-1]) == "\ufffd"  # cut in the middle


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_are_never_printed_and_the_end_cuts(pairs, kind):
    tokenizer = pairs[kind].target
    ids = tokenizer.encode("a tall tree")
    assert tokenizer.decode([1, ids[0], 0, *ids[1:], 0, 2, 5, 6, 0]) == "a tall tree"
    assert tokenizer.decode([0, 1, 0, 1]) == ""
    assert tokenizer.decode([2, *ids]) == ""
    assert tokenizer.decode(np.array(ids, np.int32)) == "a tall tree"


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_and_their_names(pairs, kind):
    tokenizer = pairs[kind].source
    ids = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    assert ids == (0, 1, 2, 3)
    assert tokenizer.pieces(ids) == ["<pad>", "<s>", "</s>", "<unk>"]


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_many_is_encoding_each(pairs, kind):
    tokenizer = pairs[kind].source
    texts = ["der Hund", "", "ein  Baum"]
    assert tokenizer.encode_many(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_many([]) == []


def test_words_and_characters_that_the_vocabulary_lacks(pairs):
    words, characters = pairs["word"].source, pairs["char"].source
    assert words.decode(words.encode("der Zebra")) == "der <unk>"
    assert characters.decode(characters.encode("der Q")) == "der <unk>"


def test_a_word_vocabulary_keeps_the_most_frequent():
    corpus = ParallelCorpus(["b a b c", "b a d"], ["x", "y"], "letters")
    config = TokenizerConfig(kind="word", joint=False, vocab_size=6)
    tokenizer = train_tokenizers(corpus, config).source
    assert tokenizer.pieces(range(tokenizer.size))[4:] == ["b", "a"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("joint", [True, False])
def test_saved_and_loaded(tmp_path, kind, joint):
    pair = train(kind=kind, joint=joint)
    save_tokenizers(pair, tmp_path / "run")
    loaded = load_tokenizers(tmp_path / "run")
    assert loaded.joint is joint
    for before, after in zip(pair, loaded, strict=True):
        assert after.size == before.size
        assert after.to_bytes() == before.to_bytes()
        text = "der kleine tree"
        assert after.encode(text) == before.encode(text)
    files = {path.name.split(".")[1] for path in (tmp_path / "run").iterdir()}
    assert {"source", "target"} <= files or joint


def test_a_save_that_fails_on_the_way_leaves_nothing_to_load(
    tmp_path, files_of_at_most
):
    pair = train(kind="word")
    save_tokenizers(pair, tmp_path)
    assert has_tokenizers(tmp_path)
    with files_of_at_most(100), pytest.raises(OSError, match="File too large"):
        save_tokenizers(pair, tmp_path)
    assert not has_tokenizers(tmp_path)
    save_tokenizers(pair, tmp_path)
    assert load_tokenizers(tmp_path).fingerprint == pair.fingerprint


def test_a_fingerprint_is_of_both_sides_and_their_order():
    pair = train(kind="word", joint=False)
    source, target = pair
    others = [TokenizerPair(target, source), TokenizerPair(source, source)]
    assert pair.fingerprint == train(kind="word", joint=False).fingerprint
    assert len({pair.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_a_folder_without_tokenizers(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        load_tokenizers(tmp_path)


def test_separate_vocabularies_know_their_language_only():
    pair = train(kind="word", joint=False)
    assert pair.source.encode("dog") == [3]
    assert pair.target.encode("dog") != [3]


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(pairs, kind):
    assert train(kind=kind).source.to_bytes() == pairs[kind].source.to_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_larger_than_the_text_is_lowered(kind):
    pair = train(kind=kind, vocab_size=30_000)
    assert 4 < pair.source.size < 1_000


def test_a_vocabulary_too_small_for_the_characters_is_refused():
    with pytest.raises(
        ValueError, match=r"vocab_size must be at least 2\d\d .* got 50"
    ):
        train(kind="bpe", vocab_size=50)


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_any_character_is_refused(kind):
    empty = ParallelCorpus(["", ""], ["", ""], "nothing")
    with pytest.raises(ValueError, match="no text to train the tokenizer"):
        train_tokenizers(empty, TokenizerConfig(kind=kind))


def test_very_long_lines_are_learnt_from_too():
    line = "kumquat " * 1_000  # the library's own limit is 4,192 bytes
    corpus = ParallelCorpus([line], ["x"], "long")
    pair = train_tokenizers(corpus, TokenizerConfig(kind="bpe", vocab_size=400))
    assert "▁kumquat" in pair.source.pieces(pair.source.encode("kumquat"))


def test_sentences_beyond_the_limit_are_taken_at_equal_distances():
    words = [f"w{i}" for i in range(10)]
    corpus = ParallelCorpus(words, words, "words")
    config = TokenizerConfig(kind="word", joint=False, max_sentences=3)
    tokenizer = train_tokenizers(corpus, config).source
    assert sorted(tokenizer.pieces(range(4, tokenizer.size))) == ["w0", "w3", "w6"]


def test_a_model_with_other_special_ids_is_refused():
    with pytest.raises(ValueError, match="no SentencePiece model"):
        SentencePieceTokenizer(b"rubbish")


def test_ids_beyond_the_vocabulary_are_refused_with_place_and_size():
    check_ids([0, 3], 4, "here")
    with pytest.raises(
        ValueError, match=r"x\.de, line 7: token 2 has id -1, .* 0 to 3"
    ):
        check_ids([3, -1, 100], 4, "x.de, line 7")
    with pytest.raises(ValueError, match="id 4"):
        check_ids([4], 4, "here")
