"""Translation sets of tensorflow-datasets, read without TensorFlow.

A set that is not prepared yet is prepared here: its archives are taken from
`TFDSSource.manual_dir` or downloaded, extracted, and written as array records. The
library leaves two steps to TensorFlow, extraction and the default record format; this
module supplies both.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from attnjax.config import TFDSSource
from attnjax.data.parallel import ParallelCorpus

_CONNECTION_SECONDS = 5.0  # to wait for a server before a download begins
_MOST_PAIRS_READ_AT_ONCE = 10_000  # larger splits are read on demand


def load_tfds(
    config: TFDSSource, source_language: str, target_language: str
) -> tuple[ParallelCorpus, ParallelCorpus, ParallelCorpus]:
    """Reads the three splits of a translation set, preparing it the first time.

    Args:
        config: the name in the catalog, folders and splits.
        source_language: a language of the set, such as ``de``.
        target_language: another one.

    Returns:
        ``(train, valid, test)``; large splits are read from disk on demand. The order
        is the library's, which shuffles by key, and not that of the archives.

    Raises:
        ValueError: no such set, language or split, or a damaged archive.
        ConnectionError: an archive is missing and its server cannot be reached.
    """
    builder = _find_builder(config)
    languages = sorted(builder.info.features)
    for language in (source_language, target_language):
        if language not in languages:
            raise ValueError(
                f"{config.name} has no language {language!r}, only "
                f"{', '.join(languages)}; set data.source_language and "
                "data.target_language to two of them."
            )
    if not builder.is_prepared():
        _prepare(builder, config)
    train, valid, test = (
        _read_split(builder, config.name, split, (source_language, target_language))
        for split in (config.train_split, config.valid_split, config.test_split)
    )
    return train, valid, test


class _Rows:
    """Access to the examples; the last one is kept, for both sides ask for it."""

    def __init__(self, examples: Sequence[dict[str, Any]]) -> None:
        self.examples = examples
        self._last: tuple[int, dict[str, Any]] = (-1, {})

    def __getitem__(self, index: int) -> dict[str, Any]:
        number, example = self._last
        if number != index:
            example = self.examples[index]
            self._last = index, example
        return example


class _Column(Sequence[str]):
    """One language of the examples, as text."""

    def __init__(self, rows: _Rows, language: str) -> None:
        self._rows, self._language = rows, language

    def __len__(self) -> int:
        return len(self._rows.examples)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        text = self._rows[index % len(self)][self._language]
        return text.decode("utf-8") if isinstance(text, bytes) else text


def _find_builder(config: TFDSSource) -> Any:
    import tensorflow_datasets

    # The translation sets are registered only by this import.
    import tensorflow_datasets.translate  # noqa: F401

    data_dir = config.data_dir and os.fspath(config.data_dir.expanduser())
    try:
        return tensorflow_datasets.builder(
            config.name, data_dir=data_dir, try_gcs=False
        )
    except tensorflow_datasets.core.DatasetNotFoundError:
        raise ValueError(
            f"tensorflow-datasets has no set {config.name!r}; expected a name of its "
            "catalog (https://www.tensorflow.org/datasets/catalog), such as "
            "wmt14_translate/de-en, or of a set prepared in data.source.data_dir."
        ) from None
    except ValueError:
        family = config.name.partition("/")[0]
        variants = sorted(tensorflow_datasets.builder_cls(family).builder_configs)
        raise ValueError(
            f"{family} has no {config.name!r}, only {', '.join(variants)}; the order "
            "of a language pair is the catalog's, data.source_language sets the "
            "direction."
        ) from None


def _read_split(
    builder: Any, name: str, split: str, languages: tuple[str, str]
) -> ParallelCorpus:
    try:
        rows = _Rows(builder.as_data_source(split=split))
    except (KeyError, ValueError, AssertionError) as error:
        raise ValueError(
            f"{name} has no split {split!r}, only {', '.join(builder.info.splits)} and "
            f"slices of them such as train[:10%] ({error})."
        ) from None
    source: Sequence[str] = _Column(rows, languages[0])
    target: Sequence[str] = _Column(rows, languages[1])
    if len(source) <= _MOST_PAIRS_READ_AT_ONCE:
        source, target = list(source), list(target)
    return ParallelCorpus(source, target, origin=f"{name} {split}")


def _prepare(builder: Any, config: TFDSSource) -> None:
    from tensorflow_datasets.core.download import DownloadConfig, download_manager

    manual_dir = config.manual_dir and config.manual_dir.expanduser()
    if manual_dir is not None and not manual_dir.is_dir():
        raise ValueError(
            f"data.source.manual_dir {manual_dir} is no folder; expected one that "
            f"holds the archives of {config.name}."
        )
    try:
        # Its progress belongs on stderr: stdout is for results.
        with contextlib.redirect_stdout(sys.stderr), _patched(builder, manual_dir):
            builder.download_and_prepare(
                download_config=DownloadConfig(
                    manual_dir=manual_dir and os.fspath(manual_dir)
                ),
                file_format="array_record",
            )
    except download_manager.NonMatchingChecksumError as error:
        artifact = str(error).splitlines()[0].rstrip(":")  # "... has wrong checksum"
        raise ValueError(
            f"{artifact}; it is damaged or another version, so download it again."
        ) from None
    except AssertionError as error:  # how the builders report missing manual files
        raise ValueError(f"{config.name} cannot be prepared: {error}") from None


@contextlib.contextmanager
def _patched(builder: Any, manual_dir: Path | None) -> Iterator[None]:
    """Preparation without TensorFlow, and without retries on a missing network.

    The extractor of tensorflow-datasets needs two functions of TensorFlow, and its
    downloader asks an unreachable server ten times before it gives up.
    """
    from tensorflow_datasets.core.download import download_manager, extractor

    manager = download_manager.DownloadManager
    tensorflow, download = extractor.tf, manager._download

    def download_if_reachable(self: Any, resource: Any) -> Any:
        _require_server(resource.url, builder, manual_dir)
        return download(self, resource)

    extractor.tf = types.SimpleNamespace(
        compat=types.SimpleNamespace(as_text=str),
        io=types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=io.open)),
    )
    manager._download = download_if_reachable
    try:
        yield
    finally:
        extractor.tf, manager._download = tensorflow, download


def _require_server(url: str, builder: Any, manual_dir: Path | None) -> None:
    import requests

    try:
        requests.head(url, timeout=_CONNECTION_SECONDS)
    except requests.RequestException as error:
        known = sorted(info.filename for info in (builder.url_infos or {}).values())
        folder = manual_dir or "a folder that data.source.manual_dir names"
        raise ConnectionError(
            f"{builder.info.full_name} is not prepared yet, {url} cannot be reached "
            f"({type(error).__name__}), and the archive was not downloaded before; "
            f"fetch it elsewhere and put it into {folder}. Archives of this family: "
            f"{', '.join(known)}."
        ) from None
