"""A beginning is spelled by any tokens that say exactly it, and nothing is cut off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.config import TokenizerConfig
from attnjax.data.beginnings import BeginningSpeller
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.tokenizers import train_tokenizers
from attnjax.decoding.constraints import Constraints, Spelling
from attnjax.decoding.greedy import greedy_search
from attnjax.decoding.hypotheses import SpecialTokens

TEXT = "February 1964 in Oslo"
TEXTS = [TEXT, "Feb. 19, 東京", "February 2 in Februarys"] * 20
KINDS = {
    "sentencepiece": TokenizerConfig(kind="bpe", vocab_size=400),
    "word": TokenizerConfig(kind="word"),
    "char": TokenizerConfig(kind="char"),
}
ANY_TEXTS = [" Feb", "February  ", "x  y ", "\u00e4\u0259"]
BEGINNINGS = [TEXT[:length] for length in range(1, len(TEXT) + 1)]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    corpus = ParallelCorpus(TEXTS, TEXTS, "here")
    return train_tokenizers(corpus, KINDS[request.param]).target


def test_what_may_come_next_spells_the_beginning(tokenizer):
    speller = BeginningSpeller(tokenizer)
    texts = [*BEGINNINGS, "東", "Oslo in "]
    if tokenizer.kind == "sentencepiece":  # it alone says all texts to the letter
        texts += ANY_TEXTS
    for text in texts:
        ids, rest = speller.split(text)
        if not rest:
            assert ids == tokenizer.encode(text)  # such as <unk> of an unknown word
            continue
        for token in speller.next_tokens(rest):
            output = tokenizer.decode([*ids, token])
            shorter, longer = sorted((output, text), key=len)
            assert longer.startswith(shorter)
    assert speller.split("") == ([], b"")


def test_a_space_at_the_end_is_left_to_the_next_word(tokenizer):
    speller = BeginningSpeller(tokenizer)
    ids, rest = speller.split("in February ")
    assert tokenizer.decode(ids) == "in February"
    assert rest == b" "
    following = {tokenizer.pieces([token])[0] for token in speller.next_tokens(rest)}
    whole = {"sentencepiece": "\u25811964", "word": "1964", "char": " "}
    assert whole[tokenizer.kind] in following
    assert tokenizer.eos_id not in speller.next_tokens(rest)


def follow(tokenizer, path):
    """A step that prefers a path of tokens, by their places, and then to end."""
    table = np.zeros((40, tokenizer.size), np.float32)
    table[:, tokenizer.eos_id] = 1.0
    table[np.arange(len(path)), path] = 5.0

    def step(places, tokens):
        del tokens
        return jnp.asarray(table)[places], places + 1

    return step


@pytest.fixture(scope="module")
def forced(tokenizer):
    """Greedy search where the model would say `TEXT`, for one beginning a row."""
    path = [*tokenizer.encode(TEXT), tokenizer.eos_id]
    special = SpecialTokens(tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id)
    size = 40

    def forced(texts):
        rows = len(texts)
        begun = BeginningSpeller(tokenizer).lay_out(texts, rows)
        spelling = Spelling(begun.states, begun.allowed, begun.sizes)
        search = jax.jit(
            lambda limits, prefix, spelling: greedy_search(
                follow(tokenizer, path),
                jnp.zeros(rows, jnp.int32),
                limits,
                special=special,
                max_tokens=size,
                constraints=Constraints(prefix=prefix, spelling=spelling, min_tokens=2),
            )
        )
        found = search(np.full(rows, size), begun.ids, spelling)
        return [
            tokens[0, : lengths[0]].tolist()
            for tokens, lengths in zip(found.tokens, found.lengths, strict=True)
        ]

    return forced, path


def test_a_beginning_of_what_comes_anyway_changes_nothing(forced):
    search, path = forced
    assert search(["", *BEGINNINGS]) == [path] * (1 + len(BEGINNINGS))


def test_another_beginning_is_kept_to_the_letter(tokenizer, forced):
    search, _ = forced
    texts = ["Feb", "19", "in ", "in Oslo ", "February 2"]
    if tokenizer.kind == "sentencepiece":
        texts += ANY_TEXTS
    for text, ids in zip(texts, search(texts), strict=True):
        assert tokenizer.decode(ids).startswith(text)
