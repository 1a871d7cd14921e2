from __future__ import annotations

import csv
import io
import math

import pytest

from headway.analysis.stats import Estimate
from headway.analysis.table import Table, compared, escape, interval, number, percent, probability, ranges

TABLE = Table(["name", "x", "n"], [["a", 0.123456, 3], ["b", math.inf, None]], "T", formats={"x": ".2f"})


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([2, 0, 1], "0–2"), ([0, 1, 5, 7, 8, 8], "0–1, 5, 7–8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_how_many_seeds_a_ratio_rests_on() -> None:
    assert compared(None, 3) == compared(Estimate(1, 0, 2, 3), 3) == ""
    assert compared(Estimate(1, 0, 2, 1), 2) == "(1 of 2 seeds)"
    assert compared(Estimate(1, 0, 2, 3, unpaired=(5, 3)), 5) == "(unpaired, 5 against 3)"


def test_numbers() -> None:
    assert number(None) == number(math.nan) == percent(None) == probability(None) == "–"
    assert number(1.23456) == "1.235"
    assert percent(0.256) == "26%"
    assert probability(0.00001) == "< 0.0001"
    assert probability(0.0416) == "0.0416"
    assert interval(Estimate(1, 0.5, 1.5, 3), ".1f") == "[0.5, 1.5]"
    assert interval(Estimate(1, -math.inf, math.inf, 1)) == interval(None) == "–"


def test_csv_has_numbers_in_full_and_no_formulas() -> None:
    table = Table(["name", "value"], [["=1+1", 1 / 3], ['a,b\n"c"', math.nan], ["-x", None], ["plain", 2]])
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["name"] for row in rows] == ["'=1+1", 'a,b\n"c"', "'-x", "plain"]
    assert [row["value"] for row in rows] == [repr(1 / 3), "", "", "2"]


def test_latex_escapes_what_it_would_read() -> None:
    attack = r"\input{/etc/passwd} 50% $x$ a_b & #1 ~^ {} <|>"
    text = Table([attack], [[attack], ["x"]], "T\n\\evil").latex()
    assert r"\input{" not in text.replace("% T \\evil", "")
    assert r"\textbackslash{}input\{/etc/passwd\} 50\% \$x\$ a\_b \& \#1" in text
    assert text.splitlines()[0] == "% T \\evil", "the title is one line of comment"
    assert escape("a\nb") == "a b"


def test_latex_numbers() -> None:
    text = TABLE.latex()
    assert r"\begin{tabular}{lrr}" in text
    assert r"a & $0.12$ & 3 \\" in text
    assert r"b & -- & -- \\" in text


def test_text() -> None:
    assert TABLE.text() == "T\nname  x     n\n----  ----  -\na     0.12  3\nb     –     –"
    wide = Table(("x", "long head"), (("1", "2"), ("wide cell", "3")), "numbers")
    assert wide.text() == "numbers\nx          long head\n---------  ---------\n1          2\nwide cell  3"
    assert Table(["a"], [["b"]]).text() == "a\n-\nb"


def test_markdown() -> None:
    assert TABLE.markdown() == "| name | x | n |\n|---|---|---|\n| a | 0.12 | 3 |\n| b | – | – |"
    assert Table(["a|b"], [["c\n|d"]]).markdown() == "| a\\|b |\n|---|\n| c \\|d |"


def test_html() -> None:
    text = Table(["<a>", "n"], [["<script>", 1.5], ["&", None]], '"T"').html()
    assert text.splitlines() == [
        "<table>",
        "<caption>&quot;T&quot;</caption>",
        '<thead><tr><th>&lt;a&gt;</th><th class="num">n</th></tr></thead>',
        "<tbody>",
        '<tr><th scope="row">&lt;script&gt;</th><td class="num">1.5</td></tr>',
        '<tr><th scope="row">&amp;</th><td class="num">–</td></tr>',
        "</tbody>",
        "</table>",
    ]
