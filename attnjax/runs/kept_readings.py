"""Readings of attention as word alignment, kept in the run folder they belong to.

To choose one takes seconds, and gives the same one for the same weights, config and
sentence pairs. ``readings.json`` holds the latest ones by a digest of all these. What
cannot be read or written there is chosen anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnjax import __version__, config_json
from attnjax.evaluation.alignment import AlignmentScores
from attnjax.evaluation.attention_readings import Reading
from attnjax.json_files import read_bounded
from attnjax.runs.evaluated import weights_fingerprint
from attnjax.runs.opening import TrainedRun
from attnjax.storage.files import replace_text
from attnjax.storage.manifest import sealed, unsealed

_FILE = "readings.json"
_VERSION = 1  # of the file, and of how a reading is chosen
_MOST_KEPT = 20


class ChosenReading(NamedTuple):
    """A reading and why it was chosen.

    Attributes:
        reading: which attention is read, and how.
        scores: on the pairs that it was chosen by; None if no links were known.
        reason: a sentence for the log.
    """

    reading: Reading
    scores: AlignmentScores | None
    reason: str


class KeptReadings:
    """The readings that a run folder holds.

    Args:
        run: an opened run; of an ensemble the folder is the first member's.
    """

    def __init__(self, run: TrainedRun) -> None:
        self._path: Path = run.folder.path / _FILE

    def find(self, key: str) -> ChosenReading | None:
        """The reading that was kept under a key.

        Args:
            key: of `reading_key`.

        Returns:
            The reading; None if there is none, or the file is damaged.
        """
        with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
            found = self._stored()["readings"][key]
            scores = found["scores"]
            return ChosenReading(
                Reading(**found["reading"]),
                None if scores is None else AlignmentScores(**scores),
                str(found["reason"]),
            )
        return None

    def keep(self, key: str, chosen: ChosenReading) -> None:
        """Stores a reading, if the folder can be written to.

        Args:
            key: of `reading_key`.
            chosen: the reading.
        """
        readings: dict[str, Any] = {}
        with contextlib.suppress(ValueError, OSError, KeyError, TypeError):
            readings = dict(self._stored()["readings"])
        scores = chosen.scores and dataclasses.asdict(chosen.scores)
        readings[key] = {
            "number": 1
            + max((each["number"] for each in readings.values()), default=0),
            "reading": dataclasses.asdict(chosen.reading),
            "scores": scores,
            "reason": chosen.reason,
        }
        newest = sorted(readings, key=lambda each: readings[each]["number"])
        kept = {each: readings[each] for each in newest[-_MOST_KEPT:]}
        with contextlib.suppress(OSError):
            content = {"version": _VERSION, "readings": kept}
            replace_text(self._path, sealed(content))

    def _stored(self) -> dict[str, Any]:
        return unsealed(read_bounded(self._path), origin=str(self._path))


def reading_key(run: TrainedRun, pairs: Sequence[Any] | None) -> str:
    """A digest of all that the choice of a reading depends on.

    Args:
        run: an opened run: its weights, config and tokenizers count.
        pairs: what the reading is chosen by, as values that print alike; None for the
            experiment's own set, which its config names.

    Returns:
        Hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    experiment = dataclasses.replace(run.experiment, workdir=Path("."))
    for fact in (
        _VERSION,
        __version__,
        config_json.to_json(experiment),
        run.translator.tokenizers.fingerprint,
        run.translator.config.max_source_tokens,
        weights_fingerprint(run.variables),
        pairs,
    ):
        digest.update(f"{fact!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
