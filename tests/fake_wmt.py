"""Tiny archives in the shape of the WMT 2014 ones, and their checksums."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

COMMONCRAWL = "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz"
EUROPARL = "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz"
NEWS = "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz"
DEV = "http://data.statmt.org/wmt19/translation-task/dev.tgz"

GERMAN = ["Das Haus ist klein .", "Der Hund schläft .", "Wir lesen ein Buch ."]
ENGLISH = ["The house is small .", "The dog sleeps .", "We read a book ."]


def make_archives(folder: Path, pairs_each: int = 40) -> dict[str, tuple[int, str]]:
    """Writes the four archives of ``wmt14_translate/de-en``.

    Args:
        folder: where to write them, by their real names.
        pairs_each: pairs in each of the three training parts; the validation and test
            sets have 5 and 4.

    Returns:
        For each URL, the size in bytes and the SHA-256 of its archive.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        EUROPARL: _texts("training/europarl-v7.de-en", "ep", pairs_each),
        COMMONCRAWL: _texts("commoncrawl.de-en", "cc", pairs_each),
        NEWS: _texts("training/news-commentary-v9.de-en", "nc", pairs_each),
        DEV: _texts("dev/newstest2013", "valid", 5)
        | {
            "dev/newstest2014-deen-src.de.sgm": _sgm(_lines(GERMAN, "test", 4)),
            "dev/newstest2014-deen-ref.en.sgm": _sgm(_lines(ENGLISH, "test", 4)),
        },
    }
    infos = {}
    for url, files in contents.items():
        path = folder / url.rsplit("/", 1)[-1]
        with tarfile.open(path, "w:gz") as archive:
            for name, text in files.items():
                data = text.encode("utf-8")
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        data = path.read_bytes()
        infos[url] = len(data), hashlib.sha256(data).hexdigest()
    return infos


def patch_checksums(monkeypatch, infos: dict[str, tuple[int, str]]) -> None:
    """Makes tensorflow-datasets expect these archives instead of the real ones."""
    from tensorflow_datasets.core.download import checksums
    from tensorflow_datasets.translate import wmt14

    url_infos = {
        url: checksums.UrlInfo(
            size=size, checksum=checksum, filename=url.rsplit("/", 1)[-1]
        )
        for url, (size, checksum) in infos.items()
    }
    monkeypatch.setattr(wmt14.Wmt14Translate, "url_infos", url_infos)


def _texts(stem: str, name: str, count: int) -> dict[str, str]:
    return {
        f"{stem}.{language}": "\n".join(_lines(sentences, name, count))
        for language, sentences in (("de", GERMAN), ("en", ENGLISH))
    }


def _lines(sentences: list[str], name: str, count: int) -> list[str]:
    return [
        f"{name} {number} {sentences[number % len(sentences)]}"
        for number in range(count)
    ]


def _sgm(lines: list[str]) -> str:
    segments = [
        f'<seg id="{number}">{line}</seg>' for number, line in enumerate(lines, start=1)
    ]
    return "\n".join(['<doc docid="fake">', *segments, "</doc>", ""])
