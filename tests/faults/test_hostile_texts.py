"""Bad text: each kind is read as documented, or refused with file and line.

The bytes stand in the table below, with the pairs that a corpus of them has or the
sentence that refuses it; the same bytes then go through ``attnjax translate``.
"""

import dataclasses
import gzip
import io
import json
import logging
import lzma
import re
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from attnjax import config_json
from attnjax.cli import main
from attnjax.config import (
    DataConfig,
    DecodingConfig,
    Experiment,
    RNNConfig,
    TextFilesSource,
    TokenizerConfig,
)
from attnjax.data.pipeline import training_batches
from attnjax.data.text_files import read_lines, read_text_files
from attnjax.data.tokenizers import save_tokenizers, train_tokenizers
from attnjax.experiment import RunFolder, build_model, build_task
from attnjax.storage.checkpoints import Checkpoints
from attnjax.tasks.translator import Translator
from attnjax.training.optimizers import make_optimizer
from attnjax.training.state import init_state

LONG = "lang " * 20_000  # 100,000 characters
FOLDER = object()  # stands for content: a folder is there instead of a file
UNREADABLE = object()  # and here a file that the system does not let us read


class Case(NamedTuple):
    """What is on disk, and what becomes of it.

    Attributes:
        source: content of the source file.
        expected: the pairs, or a pattern of the sentence that refuses the corpus.
        target: content of the target file.
        ending: of the source file's name, behind ``train.de``.
    """

    source: bytes
    expected: list[tuple[str, str]] | str
    target: bytes = b"one\ntwo\n"
    ending: str = ""


def pairs(*sources):
    return list(zip(sources, ("one", "two"), strict=True))


def flipped(content, place):
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


CASES = {
    "invalid UTF-8": Case(b"eins\nf\xfcr\n", r"train\.de, line 2, byte 2: .* 0xfc"),
    "cut in a character": Case(b"eins\nz\xc3", r"train\.de, line 2, byte 2: .* 0xc3"),
    "overlong NUL": Case(b"eins\nz\xc0\x80\n", r"line 2, byte 2: .* 0xc0"),
    "surrogates": Case(b"eins\n\xed\xa0\x80\n", r"line 2, byte 1: .* 0xed"),
    "Latin-1": Case("für\nzwei\n".encode("latin-1"), "iconv -f ISO-8859-1 -t UTF-8"),
    "UTF-16": Case("eins\nzwei\n".encode("utf-16"), r"line 1: .*iconv -f UTF-16"),
    "UTF-16 of another script": Case(
        "один\nдва\n".encode("utf-16"), r"line 1, byte 1: .*iconv -f UTF-16"
    ),
    "UTF-16, unmarked": Case(
        "eins\nzwei\n".encode("utf-16-le"), r"train\.de, line 1: .*iconv -f UTF-16"
    ),
    "byte order mark": Case(b"\xef\xbb\xbfeins\nzwei\n", pairs("eins", "zwei")),
    "mark inside": Case("eins\n\ufeffzwei\n".encode(), pairs("eins", "\ufeffzwei")),
    "Windows line ends": Case(b"eins\r\nzwei\r\n", pairs("eins", "zwei")),
    "lone CR": Case(b"ei\rns\nzwei\n", pairs("ei\rns", "zwei")),
    "only CR, as of old": Case(
        b"eins\rzwei\r", r"train\.en has 2, but \S+train\.de ends after line 1\."
    ),
    "U+2028 and U+2029": Case(
        "ei\u2028ns\nzw\u2029ei\n".encode(), pairs("ei\u2028ns", "zw\u2029ei")
    ),
    "U+0085": Case("ei\x85ns\nzwei\n".encode(), pairs("ei\x85ns", "zwei")),
    "vertical tab, form feed": Case(
        b"ei\x0bns\nzw\x0cei\n", pairs("ei\x0bns", "zw\x0cei")
    ),
    "NUL": Case(b"ei\0ns\nzwei\n", pairs("ei\0ns", "zwei")),
    "empty file": Case(b"", r"train\.de is empty"),
    "only a byte order mark": Case(b"\xef\xbb\xbf", r"train\.de is empty"),
    "blank line": Case(b"\nzwei\n", pairs("", "zwei")),
    "white space": Case(" \t \n\u3000\u00a0\n".encode(), pairs(" \t ", "\u3000\u00a0")),
    "100,000 characters": Case(f"{LONG}\nzwei\n".encode(), pairs(LONG, "zwei")),
    "too few lines": Case(b"eins\n", r"train\.en has 2, .*train\.de ends after line 1"),
    "too many lines": Case(b"a\nb\nc\n", r"train\.de has 3, .*train\.en ends after"),
    "no end of line": Case(b"eins\nzwei", pairs("eins", "zwei")),
    "duplicates": Case(
        b"eins\neins\n", [("eins", "one"), ("eins", "one")], b"one\none\n"
    ),
    "tabs": Case(b"ei\tns\nzwei\t\n", pairs("ei\tns", "zwei\t")),
    "beyond the first plane": Case(
        "😀👩‍👩‍👧\n𓀀\U0010ffff\n".encode(), pairs("😀👩‍👩‍👧", "𓀀\U0010ffff")
    ),
    "combining characters": Case(  # not composed: decoding gives the text back
        "fu\u0308r\nz\u0301\u0302\u0303\n".encode(),
        pairs("fu\u0308r", "z\u0301\u0302\u0303"),
    ),
    "truncated archive": Case(
        gzip.compress(b"eins\nzwei\n")[:-9], r"train\.de\.gz is damaged", ending=".gz"
    ),
    "corrupted archive": Case(
        flipped(lzma.compress(b"eins\nzwei\n" * 9), 30),
        *(r"train\.de\.xz is damaged", b"one\ntwo\n", ".xz"),
    ),
    "no archive": Case(b"eins\nzwei\n", r"train\.de\.gz is damaged", ending=".gz"),
    "folder": Case(FOLDER, r"train\.de cannot be read: Is a directory"),
    "unreadable": Case(UNREADABLE, r"train\.de cannot be read: "),
    "special tokens": Case(
        b"<pad> <s> </s>\n<unk> <0x0A>\n", pairs("<pad> <s> </s>", "<unk> <0x0A>")
    ),
    "U+2581": Case("ei\u2581ns\nzwei\n".encode(), pairs("ei\u2581ns", "zwei")),
    "private use": Case("\ue000\n\U000f0000\n".encode(), pairs("\ue000", "\U000f0000")),
    "direction controls": Case(
        "\u202eeins\u2066\nzw\u200dei\n".encode(),
        pairs("\u202eeins\u2066", "zw\u200dei"),
    ),
}
READ = {name: case for name, case in CASES.items() if isinstance(case.expected, list)}
NEEDS_BOTH = ("only CR", "empty", "only a byte order", "too few", "too many")
REFUSED = [
    name for name in CASES if not name.startswith(NEEDS_BOTH) and name not in READ
]


def put(path, content):
    if content is FOLDER:
        path.mkdir()
    elif content is UNREADABLE:
        path.symlink_to("/proc/self/mem")  # permissions would not stop root
    else:
        path.write_bytes(content)


def test_there_are_enough_of_each():
    assert len(READ) >= 15
    assert len(REFUSED) >= 10


@pytest.mark.parametrize("name", CASES)
def test_a_corpus_is_read_as_documented_or_refused(tmp_path, name):
    case = CASES[name]
    put(tmp_path / f"train.de{case.ending}", case.source)
    (tmp_path / "train.en").write_bytes(case.target)
    if name in READ:
        corpus = read_text_files(tmp_path / "train", "de", "en")
        assert [corpus[number] for number in range(len(corpus))] == case.expected
        return
    with pytest.raises((ValueError, OSError), match=case.expected) as caught:
        read_text_files(tmp_path / "train", "de", "en")
    message = str(caught.value)
    assert str(tmp_path / "train.de") in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.fixture(scope="module")
def hostile_corpus(tmp_path_factory):
    """All that can be read, as one corpus of files."""
    folder = tmp_path_factory.mktemp("corpus")
    for language, side in (("de", 0), ("en", 1)):
        lines = [pair[side] for case in READ.values() for pair in case.expected]
        (folder / f"train.{language}").write_bytes("\n".join(lines).encode())
    return folder / "train"


@pytest.fixture(scope="module", params=["bpe", "unigram", "char"])
def tokenizers(request, hostile_corpus):
    corpus = read_text_files(hostile_corpus, "de", "en")
    return train_tokenizers(corpus, TokenizerConfig(kind=request.param, vocab_size=400))


def test_tokens_give_every_text_back(hostile_corpus, tokenizers):
    """But for U+2581, which is SentencePiece's own space."""
    tokenizer = tokenizers.source
    for text in read_text_files(hostile_corpus, "de", "en").source:
        ids = tokenizer.encode(text)
        assert not {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id} & {*ids}
        space = "\u2581" if tokenizer.kind == "char" else " "
        assert tokenizer.decode(ids) == text.replace("\u2581", space)


def test_blank_and_endless_pairs_are_left_out_of_training(
    hostile_corpus, tokenizers, caplog
):
    """Also those of white space alone, for which some tokenizers have tokens."""
    corpus = read_text_files(hostile_corpus, "de", "en")
    source = TextFilesSource(
        **dict.fromkeys(("train", "valid", "test"), hostile_corpus)
    )
    config = DataConfig(
        source=source, bucket_lengths=(16, 64), tokens_per_batch=512, rows_multiple=1
    )
    with caplog.at_level(logging.INFO):
        batches = training_batches(corpus, tokenizers, config, seed=0)
        seen = set()
        while batches.get_state()["position"]["start"] <= 2 * len(corpus):
            next(batches)
            seen |= {line.rpartition(" ")[2] for line in batches.describe_last()}
        batches.close()
    left_out = {
        str(number)
        for number, text in enumerate(corpus.source, 1)
        if not text.strip() or len(text) > 1_000
    }
    assert len(left_out) == 4
    assert seen == {str(number + 1) for number in range(len(corpus))} - left_out
    assert f"4 of {len(corpus)} training pairs" in caplog.text


@pytest.mark.parametrize("kind", ["bpe", "word", "char"])
def test_nothing_but_blank_lines_is_named(tmp_path, kind):
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_bytes(b"\n\n\n")
    corpus = read_text_files(tmp_path / "train", "de", "en")
    message = r"train\.de and \S+train\.en: no text .* every line is empty"
    with pytest.raises(ValueError, match=message):
        train_tokenizers(corpus, TokenizerConfig(kind=kind, vocab_size=300))


@pytest.fixture(scope="module")
def run(tmp_path_factory, hostile_corpus):
    """A model that wants to end lines and to print what is no text."""
    source = TextFilesSource(
        **dict.fromkeys(("train", "valid", "test"), hostile_corpus)
    )
    experiment = Experiment(
        data=DataConfig(source=source),
        model=RNNConfig(embedding_width=8, hidden_width=8, attention_width=8),
        decoding=DecodingConfig(max_extra_tokens=4, max_source_tokens=8, beam_size=2),
        workdir=tmp_path_factory.mktemp("run"),
    )
    folder = RunFolder(experiment.workdir)
    lines = read_text_files(hostile_corpus, "de", "en")
    tokenizers = train_tokenizers(lines, TokenizerConfig(vocab_size=290))
    save_tokenizers(tokenizers, folder.tokenizer)
    folder.config.write_text(config_json.to_json(experiment))
    model = build_model(experiment, tokenizers)
    translator = Translator(model, tokenizers, experiment.decoding)
    task = build_task(experiment, translator, None)
    state = init_state(task, make_optimizer(experiment.optimizer, 10), 0)
    target = tokenizers.target
    end_of_line = target.encode("\n")[-1]
    assert target.pieces([end_of_line]) == ["<0x0A>"]

    def bent(path, leaf):
        name = jax.tree_util.keystr(path)
        if name.endswith("['join']['bias']"):
            return leaf + 5.0  # what the table is multiplied with becomes positive
        if name == "['output_embedding']['table']":
            unprintable = jnp.array([target.pad_id, target.bos_id])
            return leaf.at[end_of_line].set(1.0).at[unprintable].set(2.0)
        return leaf

    params = jax.tree_util.tree_map_with_path(bent, state.params)
    extra = {"batches": {"identity": {"vocabulary": tokenizers.fingerprint}}}
    with Checkpoints(folder.checkpoints, 1) as checkpoints:
        checkpoints.save(1, dataclasses.replace(state, params=params), extra)
    return folder.path


@pytest.fixture
def translate(run, monkeypatch, capsysbinary):
    """Standard input to the lines of standard output, as bytes."""

    def translate(text, *options):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = main(["translate", "--workdir", str(run), *options])
        out, err = capsysbinary.readouterr()
        assert code == 0, err
        assert out.endswith(b"\n")
        return out.split(b"\n")[:-1]

    return translate


def test_a_line_for_a_line_whatever_is_in_it(translate):
    """As JSON it is seen that the model did print ends of lines."""
    text = b"".join(case.source.rstrip(b"\n") + b"\n" for case in READ.values())
    lines = read_lines(io.BytesIO(text))
    assert text.count(b"\n") == len(lines) == 2 * len(READ)
    rows = translate(text)
    found = [json.loads(row) for row in translate(text, "--json")]
    assert [each["source"] for each in found] == lines
    texts = [each["translations"][0]["text"] for each in found]
    assert [row.decode() for row in rows] == [each.replace("\n", " ") for each in texts]
    assert not any("<pad>" in each or "<s>" in each for each in texts)
    blank = [not line.strip() for line in lines]
    assert blank.count(True) == 3
    assert [each == "" for each in texts] == blank
    assert ["\n" in each for each in texts] == [not is_blank for is_blank in blank]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_file_is_one_sentence_after_the_lines_before(
    run, tmp_path, capsys, name
):
    case = CASES[name]
    path = tmp_path / f"train.de{case.ending}"
    put(path, case.source)
    code = main(["score", "--workdir", str(run), str(path), str(path)])
    out, err = capsys.readouterr()
    assert code == 1
    assert re.search(rf"^attnjax: .*{path}.*\n\Z", err, re.MULTILINE)
    named = re.search(r", line (\d+)", err)
    assert out.count("\n") == int(named[1]) - 1 if named else out.count("\n") <= 2
