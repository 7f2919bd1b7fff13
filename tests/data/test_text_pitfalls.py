"""Rows of the table "BLEU and text" about files and subwords (B22, B25)."""

import pytest

from attnjax.config import TokenizerConfig
from attnjax.data.parallel import ParallelCorpus
from attnjax.data.text_files import read_text_files
from attnjax.data.tokenizers import train_tokenizers

ODD_LINE = "a\u2028b\x0bc\x0cd\x85e"  # subword-nmt#29, #55; fairseq#1423


@pytest.fixture(scope="module")
def tokenizer():
    lines = ["the small dog", "a tall tree", "practice makes perfect"] * 7
    corpus = ParallelCorpus(lines, lines, "english")
    config = TokenizerConfig(kind="bpe", vocab_size=400, byte_fallback=True)
    return train_tokenizers(corpus, config).source


def test_b22_lines_with_odd_separators_stay_beside_their_translations(
    tmp_path, tokenizer
):
    source = f"{ODD_LINE}\r\nf\nlast"
    assert len(source.splitlines()) == 7  # what other readers would make of three
    (tmp_path / "train.de").write_bytes(source.encode())
    (tmp_path / "train.en").write_bytes(b"first\nsecond\nthird\n")
    corpus = read_text_files(tmp_path / "train", "de", "en")
    pairs = [corpus[index] for index in range(len(corpus))]
    assert pairs == [(ODD_LINE, "first"), ("f", "second"), ("last", "third")]
    decoded = [tokenizer.decode(tokenizer.encode(line)) for line, _ in pairs]
    assert decoded == [line for line, _ in pairs]


def test_b25_bytes_of_a_character_are_joined_and_ids_decoded_together(tokenizer):
    ids = tokenizer.encode("übung der dog")  # tensor2tensor#333; no ü was seen
    assert tokenizer.pieces(ids)[:3] == ["▁", "<0xC3>", "<0xBC>"]
    assert tokenizer.decode(ids) == "übung der dog"
    one_by_one = " ".join(tokenizer.decode([token]) for token in ids)
    assert one_by_one != "übung der dog"
