"""The word of each token: pieces of a word, joined, are the word."""

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import ParallelCorpus, split_words
from attnjax.data.symbol_tokenizers import SymbolTokenizer
from attnjax.data.tokenizers import train_tokenizers
from attnjax.data.word_pieces import word_of_pieces
from attnjax.words import words_of

TEXT = ["the small dog sleeps", "ein großer Baum", "practice makes  perfect"] * 7
CORPUS = ParallelCorpus(TEXT, TEXT, "proverbs")
JAPANESE = ["犬が寝る。", "私は日本語を学ぶ。"] * 7
HOSTILE = [
    *("a b", " a", "a ", "  a   b  ", "", " ", "   ", "übung", "日本語 🤗", "🤗 🤗"),
    *("a\u00a0b", "a\u3000b c", "\t x", "a\0b \0", "\u2028", "x\x85 y", "\r z"),
    *(
        "</s> a",
        "<pad>",
        "<0x20>",
        "<0x41> b",
        "<unk> <s>",
        "\ufe30 ǆ",
        " ⁇ ",
        "\ufffd",
    ),
]
HOSTILE_TEXT = st.one_of(
    st.text(st.characters(exclude_characters="\n▁", codec="utf-8")),
    st.lists(st.sampled_from([*HOSTILE, "small", " ", "dog"])).map("".join),
)


def train(**fields):
    return train_tokenizers(
        CORPUS, TokenizerConfig(**{"vocab_size": 400} | fields)
    ).source


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: train(kind=kind) for kind in ("bpe", "unigram", "word", "char")}


def joined_words(tokenizer, ids):
    """What the tokens of each word say together."""
    words = word_of_pieces(tokenizer, ids)
    assert len(words) == len(ids)
    grouped = {}
    for token, word in zip(ids, words, strict=True):
        grouped.setdefault(word, []).append(token)
    spaces = grouped.pop(-1, [])
    assert tokenizer.decode(spaces).strip(" ") == ""
    assert list(grouped) == list(range(len(grouped)))
    return [tokenizer.decode(tokens).strip(" ") for tokens in grouped.values()]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text(tokenizers, kind, text):
    tokenizer = tokenizers[kind]
    assert joined_words(tokenizer, tokenizer.encode(text)) == split_words(text)


@settings(max_examples=300)
@given(text=HOSTILE_TEXT)
def test_any_text(tokenizers, text):
    for kind in ("bpe", "unigram"):
        tokenizer = tokenizers[kind]
        assert joined_words(tokenizer, tokenizer.encode(text)) == split_words(text)


@given(text=HOSTILE_TEXT)
def test_any_text_in_words_and_characters(tokenizers, text):
    for kind in ("word", "char"):
        tokenizer = tokenizers[kind]
        found = joined_words(tokenizer, tokenizer.encode(text))
        assert len(found) == len(split_words(text))
        for word, expected in zip(found, split_words(text), strict=True):
            assert word == expected or "<unk>" in word


def named(tokenizer, *pieces):
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces(range(tokenizer.size)))}
    return [ids[piece] for piece in pieces]


def test_a_lone_mark_of_a_space_is_in_no_word(tokenizers):
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode("ñ ñ")
    assert tokenizer.pieces(ids) == ["▁", "<0xC3>", "<0xB1>"] * 2
    assert word_of_pieces(tokenizer, ids) == [-1, 0, 0, -1, 1, 1]


def test_a_space_as_a_byte_separates(tokenizers):
    tokenizer = tokenizers["bpe"]
    ids = named(tokenizer, "▁dog", "<0x20>", "<0x41>", "<0x20>", "<0x20>", "<0x42>")
    assert tokenizer.decode(ids) == "dog A  B"
    assert word_of_pieces(tokenizer, ids) == [0, -1, 1, -1, -1, 2]


def test_special_tokens_and_what_follows_the_end_are_in_no_word(tokenizers):
    for kind in ("bpe", "word", "char"):
        tokenizer = tokenizers[kind]
        (token,) = tokenizer.encode("dog")[:1]
        ids = [1, token, 0, 2, token, 0]
        assert word_of_pieces(tokenizer, ids) == [-1, 0, -1, -1, -1, -1]


def test_special_tokens_may_have_any_ids(tokenizers, with_other_ids):
    """Theirs: ``</s>`` is 0, and id 2 a word, which ends nothing."""
    (theirs, _) = with_other_ids((tokenizers["word"], tokenizers["word"]))
    assert theirs.decode([2, 3, theirs.pad_id, 0, 4]) == theirs.decode([2, 3])
    assert word_of_pieces(theirs, [theirs.bos_id, 2, 3, 0, 4]) == [-1, 0, 1, -1, -1]


def test_words_and_characters(tokenizers):
    words, characters = tokenizers["word"], tokenizers["char"]
    ids = words.encode("the  Q small")
    assert word_of_pieces(words, [*ids, 2]) == [0, 1, 2, -1]
    ids = characters.encode(" to  aQ b")
    assert word_of_pieces(characters, ids) == [-1, 0, 0, -1, -1, 1, 1, -1, 2]


def test_an_unknown_piece_belongs_to_its_word():
    tokenizer = train(kind="bpe", byte_fallback=False, vocab_size=60)
    ids = tokenizer.encode("dog🤗 🤗")
    assert tokenizer.pieces(ids)[-3:] == ["<unk>", "▁", "<unk>"]
    assert tokenizer.decode(ids) == "dog<unk> <unk>"
    words = word_of_pieces(tokenizer, ids)
    assert words[-3:] == [0, -1, 1]
    assert set(words[:-3]) <= {0, -1}


def test_words_are_those_of_the_normalised_text():
    tokenizer = train(kind="bpe", normalization="nmt_nfkc")
    ids = tokenizer.encode("dog\u00a0Ａ")
    assert tokenizer.decode(ids) == "dog A"
    assert joined_words(tokenizer, ids) == ["dog", "A"]


def test_the_mark_of_a_space_in_the_text_separates(tokenizers):
    tokenizer = tokenizers["bpe"]
    assert joined_words(tokenizer, tokenizer.encode("dog▁small")) == ["dog", "small"]


@settings(max_examples=100)
@given(text=HOSTILE_TEXT)
def test_another_cut_gives_its_words(tokenizers, text):
    cut = functools.partial(words_of, language="ja", cut="characters")
    tokenizer = tokenizers["bpe"]
    ids = tokenizer.encode(text)
    found = word_of_pieces(tokenizer, ids, cut)
    assert max(found, default=-1) < len(cut(tokenizer.decode(ids)))
    in_words = [word for word in found if word >= 0]
    assert in_words == sorted(in_words)
    characters = ["\ufffd" if c not in "smal dog" else c for c in text]
    symbols = SymbolTokenizer("char", "smal dog")
    found = word_of_pieces(symbols, symbols.encode(text), cut)
    assert {*found} - {-1} == set(range(len(cut("".join(characters)))))


def test_words_of_a_language_without_spaces():
    corpus = ParallelCorpus(JAPANESE, JAPANESE, "proverbs")
    tokenizer = train_tokenizers(corpus, TokenizerConfig(vocab_size=300)).source
    cut = functools.partial(words_of, language="ja")
    ids = tokenizer.encode("私は寝る。猫")  # 猫 in bytes
    assert cut(tokenizer.decode(ids)) == ("私", "は", "寝る", "。", "猫")
    found = word_of_pieces(tokenizer, ids, cut)
    assert tokenizer.pieces(ids)[-3:] == ["<0xE7>", "<0x8C>", "<0xAB>"]
    assert found[-3:] == [4, 4, 4]
    assert found[-4] in (2, 3)
    assert word_of_pieces(tokenizer, ids)[1:] == [0] * (len(ids) - 1)
