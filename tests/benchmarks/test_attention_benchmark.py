"""The benchmark's figures: exponents, the table, a real small run."""

import json

import numpy as np
import pytest

from attnjax.benchmarks import attention
from attnjax.benchmarks.attention_report import Row, exponent, table


def test_exponent_is_the_slope_from_1024_on():
    points = [(n, 3.0 * n**1.5) for n in (1_024, 2_048, 4_096)]
    assert exponent([(256, 1e9), *points]) == pytest.approx(1.5)
    assert np.isnan(exponent(points[:1]))


def test_table_says_what_was_not_run():
    rows = [
        Row("dense", 1_024, "backward", 2_000_000, 10.0),
        Row("dense", 2_048, "backward", 8_000_000, 40.0),
        Row("dense", 4_096, "backward", 32_000_000, None),
        Row("dense", 4_096, "forward", 1, 1.0),
    ]
    *_, line = table(rows).splitlines()
    assert "10 ms, 2 MB | 40 ms, 8 MB | not run, 32 MB | 2.00 | 2.00 |" in line


def test_a_small_run_writes_all_files(tmp_path, capsys):
    output = tmp_path / "deep" / "cost"
    attention.main(
        [
            *("--mechanisms", "dense", "chunked", "--lengths", "64", "128"),
            *("--seconds", "0.01", "--output", str(output)),
        ]
    )
    report = json.loads(output.with_suffix(".json").read_text())
    assert len(report["rows"]) == 8
    assert all(row["milliseconds"] > 0 for row in report["rows"])
    assert all(row["temporary_bytes"] > 0 for row in report["rows"])
    assert output.with_suffix(".png").stat().st_size > 10_000
    assert "| dense |" in output.with_suffix(".md").read_text()
    assert "| chunked |" in capsys.readouterr().out


def test_what_does_not_fit_is_not_run():
    arguments = attention.Arguments(
        mechanisms=("dense",), lengths=(512,), max_gigabytes=0.001
    )
    rows = attention.measure(arguments)
    backward = next(row for row in rows if row.direction == "backward")
    assert backward.milliseconds is None
    assert backward.temporary_bytes > 1e6


def test_unknown_mechanism_is_refused():
    arguments = attention.Arguments(mechanisms=("dens",), lengths=(8,))
    with pytest.raises(ValueError, match="there is no attention mechanism 'dens'"):
        attention.measure(arguments)
