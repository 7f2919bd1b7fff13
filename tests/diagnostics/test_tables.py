"""Tables in all formats."""

import csv
import io

import pytest

from attnjax.diagnostics.tables import Table, join_tables, render_table

TABLE = Table("Scores", ("run", "BLEU ±"), [("a_1|b", "9.50"), ("日本", "12.25")])


def test_columns_of_text_stand_under_each_other():
    assert render_table(TABLE, "text").split("\n") == [
        "Scores",
        "run    BLEU ±",
        "a_1|b    9.50",
        "日本    12.25",
    ]


def test_markdown():
    assert render_table(TABLE, "markdown").split("\n") == [
        *("**Scores**", "", "| run | BLEU ± |", "| --- | ---: |"),
        *("| a_1\\|b | 9.50 |", "| 日本 | 12.25 |"),
    ]


def test_latex_means_what_is_written():
    lines = render_table(Table("", ("a_b", r"c\d"), [("50 %", "<1")]), "latex")
    assert lines.split("\n") == [
        *(r"\begin{tabular}{lr}", r"a\_b & c\textbackslash{}d \\", r"\hline"),
        *(r"50 \% & $<$1 \\", r"\end{tabular}"),
    ]


HOSTILE = Table("a\nb", ("run", "n"), [("*_x_*[\n\x1b|é\u0301", "1")])


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("text", "*_x_*[ \\x1b|é\u0301  1"),
        ("markdown", r"\*\_x\_\*\[ \\x1b\|é\u0301 | 1 |".replace("\\u0301", "\u0301")),
        ("latex", r"{*}\_x\_{*}{[} \textbackslash{}x1b\textbar{}é" + "\u0301 & 1"),
    ],
)
def test_names_stay_in_their_line_and_mean_what_is_written(form, name):
    lines = render_table(HOSTILE, form).split("\n")
    assert len([line for line in lines if name in line]) == 1
    assert "a b" in lines[0]
    assert "\x1b" not in "".join(lines)


def test_csv_is_read_back():
    table = Table("", ("run", "note"), [('say "a", b', "x\ny")])
    rows = [*csv.reader(io.StringIO(render_table(table, "csv")))]
    assert rows == [["run", "note"], ['say "a", b', "x\ny"]]


def test_tables_of_the_same_things_are_joined():
    other = Table("", ("run", "speed"), [("a_1|b", "3"), ("日本", "4")])
    joined = join_tables([TABLE, other])
    assert joined.header == ["run", "BLEU ±", "speed"]
    assert joined.rows == [["a_1|b", "9.50", "3"], ["日本", "12.25", "4"]]
    with pytest.raises(ValueError, match="same first column"):
        join_tables([TABLE, other._replace(rows=other.rows[::-1])])
