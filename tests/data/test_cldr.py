"""The embedded corpus: deterministic, disjoint, of all lengths, with alignments."""

import hashlib
import subprocess
import sys

import pytest

from attnjax.config import CLDRSource
from attnjax.data import cldr
from attnjax.data.cldr import generate_cldr
from attnjax.data.cldr_sentences import join_phrases
from attnjax.data.parallel import split_words
from attnjax.words import words_of

SMALL = CLDRSource(train_pairs=2_000, valid_pairs=101, test_pairs=103)


@pytest.fixture(scope="module")
def small():
    return generate_cldr(SMALL, "de", "en")


def digest(corpus):
    text = "\n".join([*corpus.source, *corpus.target])
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_sets_have_the_asked_sizes_and_share_no_source(small):
    assert [len(corpus) for corpus in small] == [2_000, 101, 103]
    sources = [source for corpus in small for source in corpus.source]
    assert len(set(sources)) == len(sources)


def test_lengths_reach_from_one_to_sixty_words(small):
    lengths = [len(split_words(source)) for source in small[0].source]
    assert min(lengths) == 1
    assert 55 <= max(lengths) <= 60
    shares = [sum(n > limit for n in lengths) / len(lengths) for limit in (20, 30, 50)]
    assert shares[0] > 0.07
    assert shares[1] > 0.03
    assert shares[2] > 0.002


def test_the_longest_sentence_can_be_set():
    config = CLDRSource(train_pairs=300, valid_pairs=5, test_pairs=5, max_words=7)
    lengths = [len(split_words(s)) for s in generate_cldr(config, "de", "en")[0].source]
    assert max(lengths) == 7


def test_without_spaces_between_words_its_characters_count():
    config = CLDRSource(train_pairs=300, valid_pairs=5, test_pairs=5, max_words=15)
    sources = generate_cldr(config, "ja_JP", "en")[0].source
    lengths = [len(words_of(s, "ja", cut="characters")) for s in sources]
    assert max(lengths) == 15


def test_another_process_gives_the_same_sentences(small):
    code = (
        "import hashlib\n"
        "from attnjax.config import CLDRSource\n"
        "from attnjax.data.cldr import generate_cldr\n"
        "config = CLDRSource(train_pairs=2000, valid_pairs=101, test_pairs=103)\n"
        "corpus = generate_cldr(config, 'de', 'en')[0]\n"
        "text = '\\n'.join([*corpus.source, *corpus.target])\n"
        "print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    ).stdout
    assert printed.strip() == digest(small[0])


def test_the_test_set_depends_on_the_seed_but_not_on_the_training_size(small):
    fewer = CLDRSource(train_pairs=10, valid_pairs=11, test_pairs=103)
    assert generate_cldr(fewer, "de", "en")[2].source == small[2].source
    other = CLDRSource(train_pairs=10, valid_pairs=11, test_pairs=103, seed=1)
    assert generate_cldr(other, "de", "en")[2].source != small[2].source


def test_most_sentences_differ_from_their_translations(small):
    pairs = zip(small[0].source, small[0].target, strict=True)
    assert sum(source == target for source, target in pairs) < 0.1 * len(small[0])


def test_alignments_join_the_words_of_each_phrase():
    spans = [
        join_phrases(texts, {"2": "{0} und {1}"})
        for texts in (["3. Mai 1990", "Samoa"], ["Färöer", "vor 2 Tagen"])
    ]
    assert spans == [
        ("3. Mai 1990 und Samoa", [(0, 3), (4, 5)]),
        ("Färöer und vor 2 Tagen", [(0, 1), (2, 5)]),
    ]


def test_long_lists_and_suffixes_keep_the_spans():
    patterns = {
        "start": "{0}, {1} c",
        "middle": "{0}; {1}",
        "end": "{0}, {1} a b",
    }
    text, spans = join_phrases(["x y", "z", "u v w", "t"], patterns)
    assert text == "x y, z c; u v w, t a b"
    assert spans == [(0, 2), (2, 3), (4, 7), (7, 8)]


def test_every_alignment_lies_inside_its_sentences_and_names_most_words(small):
    corpus = small[0]
    aligned = total = 0
    for index in range(0, len(corpus), 13):
        source, target = map(split_words, corpus[index])
        alignment = corpus.alignment[index]
        assert all(0 <= s < len(source) and 0 <= t < len(target) for s, t in alignment)
        aligned += len({s for s, _ in alignment})
        total += len(source)
    assert aligned > 0.9 * total


def test_numbers_are_aligned_with_themselves(small):
    corpus = small[0]
    checked = 0
    for index in range(len(corpus)):
        source, target = map(split_words, corpus[index])
        for number in {w for w in source if w.isdecimal() and source.count(w) == 1}:
            if target.count(number) == 1:
                pair = source.index(number), target.index(number)
                assert pair in corpus.alignment[index]
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    "languages", [("fr", "ja"), ("ar", "pt-BR"), ("zh_Hant", "fi"), ("nv", "en")]
)
def test_any_two_locales(languages):
    config = CLDRSource(train_pairs=50, valid_pairs=5, test_pairs=5)
    train, _, _ = generate_cldr(config, *languages)
    assert len(train) == 50
    assert all(source and target for source, target in (train[i] for i in range(50)))


def test_an_unknown_locale_is_named():
    with pytest.raises(ValueError, match="'qq' is no locale"):
        generate_cldr(SMALL, "de", "qq")


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr(cldr, "_MOST_DRAWS_IN_VAIN", 5)
    config = CLDRSource(train_pairs=40_000, valid_pairs=1, test_pairs=1, max_words=1)
    with pytest.raises(ValueError, match=r"only \d+ distinct sentences of at most 1 w"):
        generate_cldr(config, "de", "en")
