"""One page for a run: curves, scores, translations and attention, in a single file."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import importlib.resources
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnjax.diagnostics.attention_map import AttentionMap
from attnjax.diagnostics.learning_curve import COST, Series, learning_curves
from attnjax.storage.files import replace_text

_SCRIPTS = ("elements.js", "charts.js", "attention.js", "sections.js", "main.js")
_THOUSANDTHS = 1000  # weights are kept to three digits
_CURVE_DIGITS = 6
_NO_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """A sentence and what became of it.

    Attributes:
        source: The sentence.
        output: Its translation by the model.
        reference: Its translation by a person; None if there is none.
    """

    source: str
    output: str
    reference: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionExample:
    """What a model attended to while it read and wrote one sentence.

    Attributes:
        sentence: The source, by which a reader finds it.
        layers: Name to weights, each between 0 and 1; the last one is shown first.
    """

    sentence: str
    layers: Mapping[str, AttentionMap]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPage:
    """What the page of a run shows; a part that is empty is left out.

    Attributes:
        title: The name of the run.
        configuration: The experiment as in ``config.json``.
        records: The log as in ``metrics.jsonl``, oldest first.
        scores: The report of an evaluation, as in ``evaluation/<split>.json``. Each
            number with a ``<name>_signature`` beside it becomes a line of a table.
        samples: Translations to read.
        attention: Sentences for the attention viewer; without any, as for a model that
            does not attend, the page has no viewer.
        main_score: The validation score whose curve is shown first.
        languages: Codes of the source and the target, so that the reader's browser
            picks fitting fonts; empty where unknown.
    """

    title: str
    configuration: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    records: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, Any] | None = None
    samples: Sequence[Sample] = ()
    attention: Sequence[AttentionExample] = ()
    main_score: str = "bleu"
    languages: tuple[str, str] = ("", "")


def write_run_page(path: Path, page: RunPage) -> None:
    """Writes a page that needs no network, no server and no other file.

    Style, script and data all lie in the one file, and a content security policy with
    the script's hash forbids the browser everything else: no request leaves the page,
    and no text of the data can become a script. Whatever the data holds is shown as
    text. Weights are kept to three digits, so that the file stays small.

    Args:
        path: The file to write; its folder is made.
        page: What to show.

    Raises:
        ValueError: If weights are not between 0 and 1, or a sentence has none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, run_page_html(page))


def run_page_html(page: RunPage) -> str:
    """The text of the file that `write_run_page` writes.

    Args:
        page: What to show.

    Returns:
        An HTML document.

    Raises:
        ValueError: If weights are not between 0 and 1, or a sentence has none.
    """
    style = _page_file("style.css")
    script = "\n".join(map(_page_file, _SCRIPTS))
    script = f'(() => {{\n"use strict";\n{script}}})();'
    parts = {
        "policy": f"default-src 'none'; script-src {_source_hash(script)}; "
        f"style-src {_source_hash(style)}; base-uri 'none'; form-action 'none'",
        "title": html.escape(_encodable(page.title)),
        "style": style,
        "script": script,
        "data": _embeddable(_data(page)),
    }
    # One pass, so that a part which looks like a placeholder stays what it is.
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], _page_file("page.html"))


def _encodable(text: str) -> str:
    """The same with U+FFFD for each half of a surrogate pair, which UTF-8 lacks."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _page_file(name: str) -> str:
    folder = importlib.resources.files("attnjax.diagnostics") / "page"
    return (folder / name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _embeddable(data: Any) -> str:
    """JSON in ASCII without markup.

    It can hold neither ``</script>`` nor ``<!--``, no line end but JSON's own, and half
    a surrogate pair does not stop the file from being written.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.translate(_NO_MARKUP)


def _data(page: RunPage) -> dict[str, Any]:
    training, validation = learning_curves(page.records)
    costs = {COST: training[COST]} if COST in training else {}
    return {
        "title": page.title,
        "configuration": _finite(page.configuration),
        "curves": {"train": _curves(costs), "validation": _curves(validation)},
        "scores": _finite(page.scores),
        "samples": [dataclasses.asdict(sample) for sample in page.samples],
        "attention": [
            _attention(number, example)
            for number, example in enumerate(page.attention, 1)
        ],
        "main_score": page.main_score,
        "languages": page.languages,
    }


def _finite(value: Any) -> Any:
    """The same with null for NaN and infinities, which JSON lacks."""
    if isinstance(value, Mapping):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _curves(curves: Mapping[str, Series]) -> dict[str, Any]:
    return {
        name: {
            "steps": steps,
            "values": [
                float(f"{value:.{_CURVE_DIGITS}g}") if math.isfinite(value) else None
                for value in values
            ],
        }
        for name, (steps, values) in curves.items()
    }


def _attention(number: int, example: AttentionExample) -> dict[str, Any]:
    layers = []
    for name, shown in example.layers.items():
        weights_hts = np.asarray(shown.weights, np.float32)
        thousandths_hts = np.rint(weights_hts * _THOUSANDTHS)
        if not np.all((thousandths_hts >= 0) & (thousandths_hts <= _THOUSANDTHS)):
            raise ValueError(
                f"attention weights lie between 0 and 1; those of sentence {number}, "
                f"{name} reach from {np.min(weights_hts)} to {np.max(weights_hts)}."
            )
        layers.append(
            {
                "name": name,
                "queries": list(shown.queries),
                "keys": list(shown.keys),
                "query_axis": shown.query_axis,
                "key_axis": shown.key_axis,
                "heads": list(shown.heads),
                "weights": thousandths_hts.astype(int).tolist(),
            }
        )
    if not layers:
        raise ValueError(
            f"sentence {number} has no attention weights; leave it out of the page."
        )
    return {"sentence": example.sentence, "layers": layers}
