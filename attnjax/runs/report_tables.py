"""What evaluations and comparisons find, as tables for a reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnjax.config import DecodingConfig
from attnjax.config.decoding import READ_BY
from attnjax.diagnostics.tables import (
    Table,
    TableFormat,
    in_one_line,
    join_tables,
    render_table,
)
from attnjax.runs.evaluated import SPEED_ONLY

_METRICS = {"bleu": "BLEU", "chrf": "chrF2"}
_NOTHING = "-"


def evaluation_text(report: Mapping[str, Any], name: str) -> str:
    """The report of `attnjax.runs.evaluation.evaluate` as tables.

    Args:
        report: what it returned.
        name: of the run folder.

    Returns:
        Lines, without a line end after the last.
    """
    title = f"{name}, {report['split']} set of {report['lines']:,} lines"
    return _joined(_score_tables(title, name, report, report), _signatures(report))


def comparison_text(report: Mapping[str, Any], form: TableFormat = "text") -> str:
    """The report of `attnjax.runs.comparison.compare` as tables.

    Args:
        report: what it returned.
        form: how tables are written; as ``csv`` it is one table, with a row for each
            system, or for each score of a single one, and nothing else.

    Returns:
        Lines, without a line end after the last.
    """
    systems, is_csv = report["systems"], form == "csv"
    if len(systems) == 1:
        ((name, scores),) = systems.items()
        tables = _score_tables(name, name, scores, scores["details"])
        if is_csv:
            return _as_csv(tables[0])
        rest = _signatures(scores)
    else:
        tables = [_scores(systems), *_details(systems, with_counts=not is_csv)]
        if is_csv:
            return _as_csv(join_tables([*tables, *_p_columns(report)]))
        first = next(iter(systems.values()))
        rest = [
            f"signature of {label}: {first[metric]['signature']}"
            for metric, label in _METRICS.items()
        ]
    tables += [*_pairs(report), *_seeds(report)]
    rest += [f"note: {note}" for note in report["notes"]]
    return _joined(tables, rest, form)


def _joined(
    tables: Sequence[Table], rest: Sequence[str], form: TableFormat = "text"
) -> str:
    comment = "% " if form == "latex" else ""
    lines = [comment + in_one_line(line) for line in rest]
    parts = [render_table(table, form) for table in tables]
    return "\n\n".join([*parts, ("  \n" if form == "markdown" else "\n").join(lines)])


def _as_csv(table: Table) -> str:
    rows = [["" if cell == _NOTHING else cell for cell in row] for row in table.rows]
    return render_table(table._replace(rows=rows), "csv")


def _signatures(scores: Mapping[str, Any]) -> list[str]:
    lines = [
        f"signature of {label}: {scores[f'{metric}_signature']}"
        for metric, label in (*_METRICS.items(), ("ter", "TER"))
    ]
    if scores["zero_reason"] is not None:
        lines.append(f"BLEU reads 0.0: {scores['zero_reason']}")
    return [*lines, *(f"note: {note}" for note in scores.get("notes", ()))]


def _score_tables(
    title: str, name: str, scores: Mapping[str, Any], details: Mapping[str, Any]
) -> list[Table]:
    """One output, scored in all usual ways; by length; and what is known of it."""
    intervals = scores.get("intervals", {})
    rows = [
        (f"BLEU {each['name']}", each["bleu"], "bleu" if each["headline"] else "")
        for each in scores["panel"]
    ]
    rows += [("chrF2", scores["chrf"], "chrf"), ("TER", scores["ter"], "")]
    cells = []
    for label, score, metric in rows:
        interval = intervals.get(metric, {})
        spread = [_number(interval.get(key), ".2f") for key in ("mean", "half_width")]
        cells.append((label, f"{score:.2f}", *spread))
    table = Table(
        f"{title}; mean ± half of the 95 % interval",
        ("metric", "score", "mean", "±"),
        cells,
    )
    return [table, *map(_transposed, _details({name: {"details": details}}))]


def _transposed(table: Table) -> Table:
    header, *rows = zip(table.header, *table.rows, strict=True)
    return Table(table.title, header, rows)


def describe_search(decoding: Any) -> str:
    """Search settings in words.

    Args:
        decoding: a `DecodingConfig` as JSON values, as far as they are known.

    Returns:
        The method, what it ranks by, and all else that is not as by default.
    """
    if not isinstance(decoding, dict) or decoding.get("method") not in READ_BY:
        return _NOTHING
    method, defaults = decoding["method"], DecodingConfig()
    always = ("beam_size", "length_penalty") if method == "beam" else ("seed",)
    words = [
        f"{name} {decoding[name]}"
        for name in READ_BY[method]
        if name in decoding
        and name not in ("method", SPEED_ONLY)
        and (name in always or decoding[name] != getattr(defaults, name))
    ]
    return ", ".join([method, *words])


def _scores(systems: Mapping[str, Any]) -> Table:
    header = ["system"]
    for label in _METRICS.values():
        header += [label, f"{label} mean", f"{label} ±", f"{label} p"]
    rows = []
    for name, scores in systems.items():
        row = [name]
        for metric in _METRICS:
            interval = scores[metric]
            numbers = interval["score"], interval["mean"], interval["half_width"]
            row += [f"{number:.2f}" for number in numbers]
            row.append(_p_value(interval["p_value"]))
        rows.append(row)
    title = "Scores, mean ± half of the 95 % interval, p of the difference to the first"
    return Table(title, header, rows)


def _p_value(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.4f}"


def _details(systems: Mapping[str, Any], *, with_counts: bool = True) -> list[Table]:
    """BLEU by length, and how the outputs came about, as far as anybody said."""
    details = {name: scores["details"] for name, scores in systems.items()}
    if not any(details.values()):
        return []
    buckets = {
        name: {
            bucket["label"]: bucket for bucket in each.get("bleu_by_source_words", ())
        }
        for name, each in details.items()
    }
    low = {b["label"]: b["low"] for each in buckets.values() for b in each.values()}
    labels = sorted(low, key=lambda label: low[label])
    cuts = {each.get("source_words_cut_by", "spaces") for each in details.values()}
    unit = "characters" if cuts == {"characters"} else "words"
    lengths = Table(
        f"BLEU by {unit} of the source{' (lines)' if with_counts else ''}",
        ("system", *labels),
        [
            (name, *(_bucket(of_label.get(label), with_counts) for label in labels))
            for name, of_label in buckets.items()
        ],
    )
    facts = Table(
        "Systems",
        ("system", "parameters", "tokens/s", "weights", "search"),
        [
            (
                name,
                _number(each.get("parameters"), ",.0f" if with_counts else ".0f"),
                _number(each.get("tokens_per_second"), ".1f"),
                _weights(each.get("members")),
                describe_search(each.get("decoding")),
            )
            for name, each in details.items()
        ],
    )
    return [lengths, facts] if labels else [facts]


def _bucket(bucket: Mapping[str, Any] | None, with_count: bool) -> str:
    if bucket is None:
        return _NOTHING
    bleu = _number(bucket.get("bleu"), ".2f")
    return f"{bleu} ({bucket.get('count', 0)})" if with_count else bleu


def _number(value: Any, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _weights(members: Any) -> str:
    """The steps of all members, such as ``step 1,600`` or ``average last-3``."""
    if not members:
        return _NOTHING
    words = []
    for member in members:
        average = member["average"]
        step = f"step {max(member['steps']):,}"
        words.append(step if average is None else f"average {average}")
    return " + ".join(words)


def _pairs(report: Mapping[str, Any]) -> list[Table]:
    """P-values of all pairs, where the first table does not have them all."""
    if len(report["systems"]) < 3:
        return []
    rows = [
        (" - ".join(pair["systems"]), _p_value(pair["bleu"]), _p_value(pair["chrf"]))
        for pair in report["p_values"]
    ]
    title = "p-values of all pairs, each by itself"
    return [Table(title, ("systems", "BLEU", "chrF2"), rows)]


def _p_columns(report: Mapping[str, Any]) -> list[Table]:
    """The same as columns: of each system against each."""
    found = {
        (metric, frozenset(pair["systems"])): pair[metric]
        for pair in report.get("p_values", ())
        for metric in _METRICS
    }
    names = list(report["systems"])
    return [
        Table(
            "",
            ("system", *(f"p {metric} against {other}" for other in names)),
            [
                (
                    name,
                    *(
                        _p_value(found.get((metric, frozenset({name, other}))))
                        for other in names
                    ),
                )
                for name in names
            ],
        )
        for metric in _METRICS
        if found
    ]


def _seeds(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for group in report.get("seeds", ()):
        figures = []
        for metric in _METRICS:
            spread = group[metric]
            figures += [
                f"{spread['mean']:.2f} ± {spread['standard_deviation']:.2f}",
                f"{spread['least']:.2f} to {spread['greatest']:.2f}",
            ]
        rows.append((", ".join(group["systems"]), str(len(group["seeds"])), *figures))
    header = (
        "runs that differ in their seed",
        "seeds",
        "BLEU",
        "range",
        "chrF2",
        "range",
    )
    title = "Mean and standard deviation over seeds"
    return [Table(title, header, rows)] if rows else []
