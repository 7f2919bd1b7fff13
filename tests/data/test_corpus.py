"""Corpora: checked at birth, described in messages, loaded from their sources."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnjax.data
from attnjax.config import CLDRSource, DataConfig, TextFilesSource
from attnjax.data.corpus import ParallelCorpus, load_corpora, split_words


def test_a_corpus_is_checked_at_birth():
    with pytest.raises(ValueError, match="here: .* equally many, got 2, 1"):
        ParallelCorpus(["a", "b"], ["c"], "here")
    with pytest.raises(ValueError, match="got 1, 1, 2"):
        ParallelCorpus(["a"], ["c"], "here", alignment=[frozenset()] * 2)
    with pytest.raises(ValueError, match="here has no sentence pairs"):
        ParallelCorpus([], [], "here")


def test_pairs_and_their_places():
    corpus = ParallelCorpus(["a", "b"], ["c", "d"], "here")
    assert corpus[1] == ("b", "d")
    assert len(corpus) == 2
    assert corpus.describe(1) == "here, line 2"


def test_words_are_apart_by_spaces_only():
    assert split_words(" a  b\u00a0c\u202fd\u2028e ") == ["a", "b\u00a0c\u202fd\u2028e"]
    assert split_words("") == []


def test_text_files_are_loaded_by_language(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.de").write_text(
            f"{split} auf deutsch\n", encoding="utf-8"
        )
        (tmp_path / f"{split}.en").write_text(f"{split} in English\n", encoding="utf-8")
    prefixes = {split: tmp_path / split for split in ("train", "valid", "test")}
    config = DataConfig(
        source=TextFilesSource(**prefixes), source_language="en", target_language="de"
    )
    corpora = load_corpora(config)
    for split, corpus in corpora.items():
        assert corpus[0] == (f"{split} in English", f"{split} auf deutsch")


def test_cldr_is_loaded_with_alignments():
    config = DataConfig(source=CLDRSource(train_pairs=11, valid_pairs=3, test_pairs=2))
    corpora = load_corpora(config)
    assert [len(corpora[split]) for split in ("train", "valid", "test")] == [11, 3, 2]
    assert corpora["test"].alignment is not None


def test_no_module_of_data_uses_jax():
    folder = Path(attnjax.data.__file__).parent
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", [])]
            modules = [getattr(node, "module", None) or "", *names]
            assert not any(name.split(".")[0] in ("jax", "flax") for name in modules)


def test_importing_data_does_not_load_tensorflow_datasets():
    code = (
        "import sys, attnjax.data.corpus, attnjax.data.pipeline\n"
        "print([m for m in ('tensorflow', 'tensorflow_datasets') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.strip() == "[]"
