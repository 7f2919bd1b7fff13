"""The page of a run in a browser: opened, pointed at, clicked through."""

import importlib.util
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from attnjax.diagnostics.attention_map import AttentionMap
from attnjax.diagnostics.run_page import (
    AttentionExample,
    RunPage,
    Sample,
    write_run_page,
)

SOURCE = ["▁Der", "▁Hund", "▁läuft", "</s>"]
TARGET = ["▁The", "▁dog", "</s>"]
MARKUP = "<img src=x onerror=alert(1)></script><b>bold</b> &lt;"
DIAGONAL = [[0.7, 0.1, 0.1, 0.1], [0.0, 0.9, 0.1, 0.0], [0.0, 0.0, 0.2, 0.8]]
SHIFTED = [[0.0, 0.6, 0.4, 0.0], [0.1, 0.0, 0.5, 0.4], [1.0, 0.0, 0.0, 0.0]]
BACKWARDS = [row[::-1] for row in DIAGONAL]
SHADES = (
    "[...document.querySelectorAll('[data-side={side}] .token')]"
    ".map((token) => token.querySelector('.weight').textContent)"
)
CUT_LABELS = (
    "[...document.querySelectorAll('.chart text')].filter((text) => {"
    "const [inner, outer] = [text, text.closest('svg')].map((one) =>"
    "one.getBoundingClientRect());"
    "return inner.left < outer.left || inner.right > outer.right;"
    "}).map((text) => text.textContent)"
)
BROKEN_NUMBERS = (
    "[...document.querySelectorAll('.samples td.number')].filter((cell) => {"
    "const range = document.createRange(); range.selectNodeContents(cell);"
    "return range.getClientRects().length !== 1; }).map((cell) => cell.textContent)"
)


def _driver():
    path = Path(__file__).parent / "chromium.py"
    specification = importlib.util.spec_from_file_location("chromium", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _browser_or_skip(driver):
    binary = driver.find_browser()
    if binary is None:
        reason = (
            "no Chromium was found, so nobody has looked at the page of a run; install "
            "it (apt-get install chromium) or name one in the variable CHROME"
        )
        warnings.warn(reason, stacklevel=1)
        pytest.skip(reason)
    return binary


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = _driver()
    binary = _browser_or_skip(driver)
    chromium = driver.Chromium(binary, tmp_path_factory.mktemp("profile"))
    yield chromium
    chromium.close()


def _scores(bleu, chrf, perplexity):
    return {"bleu": bleu, "chrf": chrf, "perplexity": perplexity}


def _map(weights, queries=TARGET, keys=SOURCE, **axes):
    return AttentionMap(weights=np.array(weights), queries=queries, keys=keys, **axes)


def _page(**changes):
    among = np.eye(4)[None]
    layers = {
        "encoder/self": _map(among, SOURCE, query_axis="source"),
        "layer 0/cross": _map([BACKWARDS]),
        "layer 1/cross": _map([DIAGONAL, SHIFTED]),
    }
    parts = {
        "title": f"run {MARKUP}",
        "configuration": {"type": "Experiment", "model": {"type": "RNN", "width": 8}},
        "records": [
            {"event": "train", "step": 10, "loss": 4.0},
            {"event": "train", "step": 20, "loss": 3.0},
            {"event": "validation", "step": 20, "loss": 2.5, **_scores(31.5, 52, 12)},
            {"event": "validation", "step": 30, "loss": 2.6, **_scores(33, 51, 14)},
        ],
        "scores": {
            "split": "test",
            "lines": 1234,
            "bleu": 31.46,
            "bleu_signature": "nrefs:1|tok:13a",
            "bleu_by_source_words": [
                {"label": "1-10", "count": 1200, "bleu": 40.0},
                {"label": ">10", "count": 34, "bleu": 10.0},
                {"label": ">50", "count": 0, "bleu": None},
            ],
        },
        "samples": [
            Sample(source=MARKUP, output=f"output {number}") for number in range(12)
        ],
        "attention": [
            AttentionExample(sentence="Der Hund läuft", layers=layers),
            AttentionExample(
                sentence=MARKUP,
                layers={
                    "layer 1/cross": _map(
                        [[[0.25, 0.75]], [[1.0, 0.0]]], ["x"], [MARKUP, "</s>"]
                    )
                },
            ),
        ],
    }
    return RunPage(**{**parts, **changes})


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page; after the test, nothing has gone wrong in it."""

    def show(page, **window):
        path = tmp_path / "page.html"
        write_run_page(path, page)
        browser.open(path.as_uri(), **window)
        return browser

    yield show
    trouble = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    assert browser.happened(*trouble) == []
    requests = browser.happened("Network.requestWillBeSent")
    assert [event["params"]["request"]["url"] for event in requests] == [
        (tmp_path / "page.html").as_uri()
    ]


def _weights(browser, side):
    return browser.evaluate(SHADES.format(side=side))


def _token(side, index):
    return f"[data-side={side}] .token:nth-child({index + 1})"


def _choose(browser, label, text):
    """Chooses an option as a user of the keyboard would."""
    found = browser.evaluate(
        "(() => { const field = [...document.querySelectorAll('.field')].find("
        f"(one) => one.textContent.startsWith('{label}'));"
        "const select = field.querySelector('select'); select.focus();"
        "return [[...select.options].map((o) => o.text), select.selectedIndex]; })()"
    )
    options, now = found
    wanted = options.index(text)
    for _ in range(abs(wanted - now)):
        browser.press("ArrowDown" if wanted > now else "ArrowUp")


def test_pointing_at_a_target_word_shades_its_sources(opened):
    browser = opened(_page(title="run"))
    _choose(browser, "Head", "head 0")
    for index, row in enumerate(DIAGONAL):
        browser.hover(_token("target", index))
        assert _weights(browser, "source") == [f"{weight:.2f}" for weight in row]
        darkest = browser.evaluate(
            "[...document.querySelectorAll('[data-side=source] .token')].map((token) =>"
            "Number(getComputedStyle(token).backgroundColor.match(/[\\d.]+/g)[3] ?? 1))"
        )
        assert int(np.argmax(darkest)) == int(np.argmax(row))
        np.testing.assert_allclose(darkest, row, atol=0.01)
    finding = browser.evaluate("document.querySelector('.finding').textContent")
    assert finding == "</s> looks at </s> 0.80 · ▁läuft 0.20 · ▁Der 0.00"


def test_pointing_at_a_source_word_shades_the_target_words(opened):
    browser = opened(_page())
    _choose(browser, "Head", "head 0")
    browser.hover(_token("source", 1))
    assert _weights(browser, "target") == ["0.10", "0.90", "0.00"]
    assert _weights(browser, "source") == ["", "", "", ""]
    finding = browser.evaluate("document.querySelector('.finding').textContent")
    assert finding.startswith("▁Hund is looked at by ▁dog 0.90")


def test_layer_head_and_sentence_can_be_chosen(opened):
    browser = opened(_page())
    mean = np.mean([DIAGONAL, SHIFTED], axis=0)
    assert _weights(browser, "source") == ["0.35", "0.35", "0.25", "0.05"]
    np.testing.assert_allclose(mean[0], [0.35, 0.35, 0.25, 0.05])
    _choose(browser, "Head", "head 1")
    assert _weights(browser, "source") == ["0.00", "0.60", "0.40", "0.00"]
    _choose(browser, "Layer", "layer 0/cross")
    assert _weights(browser, "source") == ["0.10", "0.10", "0.10", "0.70"]
    hidden = "[...document.querySelectorAll('.field')].find((one) => "
    hidden += "one.textContent.startsWith('Head')).hidden"
    assert browser.evaluate(hidden)
    _choose(browser, "Layer", "layer 1/cross")
    assert _weights(browser, "source") == ["0.00", "0.60", "0.40", "0.00"]
    browser.click(_token("target", 2))
    _choose(browser, "Sentence", f"2 {MARKUP}")
    assert _weights(browser, "source") == ["1.00", "0.00"]
    _choose(browser, "Head", "mean of heads")
    assert _weights(browser, "source") == ["0.63", "0.38"]
    first = "document.querySelector('[data-side=source] .word').textContent"
    assert browser.evaluate(first) == MARKUP


def test_self_attention_is_explored_among_its_own_words(opened):
    browser = opened(_page())
    browser.click(_token("target", 2))
    _choose(browser, "Layer", "encoder/self")
    headings = "[...document.querySelectorAll('.row h3')].map((h) => h.textContent)"
    assert browser.evaluate(headings) == ["source", "source, looking"]
    assert _weights(browser, "source") == ["0.00", "0.00", "1.00", "0.00"]
    browser.hover(_token("target", 3))
    finding = browser.evaluate("document.querySelector('.finding').textContent")
    assert finding.startswith("</s> looks at </s> 1.00")
    _choose(browser, "Layer", "layer 1/cross")
    assert browser.evaluate(headings) == ["source", "target"]
    assert _weights(browser, "source") == ["0.50", "0.00", "0.10", "0.40"]


def test_arrow_keys_move_along_and_across(opened):
    browser = opened(_page())
    _choose(browser, "Head", "head 0")
    browser.evaluate(f"document.querySelector('{_token('target', 0)}').focus()")
    browser.press("ArrowRight")
    assert _weights(browser, "source") == ["0.00", "0.90", "0.10", "0.00"]
    browser.press("ArrowUp")
    assert _weights(browser, "target") == ["0.10", "0.90", "0.00"]
    focused = "document.activeElement.firstChild.textContent"
    assert browser.evaluate(focused) == "▁Hund"
    browser.press("End")
    assert browser.evaluate(focused) == "</s>"
    stops = "document.querySelectorAll('.token[tabindex=\"0\"]').length"
    assert browser.evaluate(stops) == 2


def test_the_table_of_weights_follows_and_leads(opened):
    browser = opened(_page())
    _choose(browser, "Head", "head 0")
    titles = "[...document.querySelectorAll('.weights td[title]')].map((c) => c.title)"
    assert browser.evaluate(titles) == [f"{w:.3f}" for row in DIAGONAL for w in row]
    browser.hover('.weights td[data-target="1"][data-source="2"]')
    assert _weights(browser, "source") == ["0.00", "0.90", "0.10", "0.00"]
    chosen = "[...document.querySelectorAll('.weights .chosen')].map("
    chosen += "(cell) => cell.textContent || cell.title)"
    assert browser.evaluate(chosen) == ["▁dog", "0.000", "0.900", "0.100", "0.000"]


def test_texts_are_shown_literally(opened):
    browser = opened(_page())
    assert browser.evaluate("document.title") == f"run {MARKUP}"
    shown = "document.getElementById('title').innerText"
    assert browser.evaluate(shown) == f"run {MARKUP}"
    cell = "document.querySelector('.samples td[data-label=source]').innerText"
    assert browser.evaluate(cell) == MARKUP
    assert browser.evaluate(
        "document.querySelectorAll('img, b b, section b').length"
    ) == (browser.evaluate("document.querySelectorAll('.legend b, .finding b').length"))


def test_curves_tell_their_values_to_mouse_and_keys(opened):
    browser = opened(_page())
    legend = "document.querySelector('.legend').textContent"
    assert browser.evaluate(legend) == "train validation 2.6step 30"
    browser.evaluate("document.querySelector('.chart svg').focus()")
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert browser.evaluate(legend) == "train 4validation step 10"
    browser.hover(".chart svg circle")
    assert browser.evaluate(legend) == "train 3validation 2.5step 20"
    best = "document.querySelector('.panel figcaption').textContent"
    assert browser.evaluate(best) == "best 33 at step 30"
    _choose(browser, "Validation score", "chrF")
    assert browser.evaluate(best) == "best 52 at step 20"
    _choose(browser, "Validation score", "perplexity")
    assert browser.evaluate(best) == "best 12 at step 20"


def test_scores_samples_and_configuration_are_there(opened):
    browser = opened(_page())
    text = browser.evaluate("document.body.innerText")
    for part in ("31.5", "1,234 lines", "nrefs:1|tok:13a", "output 9", "RNN"):
        assert part in text
    bars = "[...document.querySelectorAll('.bar')].map((bar) => bar.style.width)"
    assert browser.evaluate(bars) == ["100%", "25%", "0%"]
    rows = "[...document.querySelectorAll('.lengths tbody tr')].map((r) => r.innerText)"
    assert [row.split() for row in browser.evaluate(rows)] == [
        ["1-10", "40.0", "1,200"],
        [">10", "10.0", "34"],
        [">50", "–", "0"],
    ]
    assert "output 11" not in text
    browser.click(".more")
    assert browser.evaluate(BROKEN_NUMBERS) == []
    assert "output 11" in browser.evaluate("document.body.innerText")
    assert "width 8" in text
    browser.click("#configuration summary")
    assert "width 8" not in browser.evaluate("document.body.innerText")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_the_page_fits_and_reads_in_both_schemes(opened, width, scheme):
    long_words = ["Donaudampfschifffahrtsgesellschaftskapitän" * 3, *["Wort"] * 39]
    weights = np.full((1, 40, 40), 0.025)
    layers = {"a": _map(weights, long_words, long_words)}
    wide = AttentionExample(sentence=" ".join(long_words), layers=layers)
    late = [{"step": 100_000 * step, "loss": 1.0 / step} for step in range(1, 6)]
    page = _page(attention=[wide], records=late)
    browser = opened(page, width=width, scheme=scheme)
    assert browser.evaluate(CUT_LABELS) == []
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    ink, paper = browser.evaluate(
        "((style) => [style.color, style.backgroundColor].map((color) =>"
        "color.match(/\\d+/g).reduce((sum, part) => sum + Number(part), 0)))"
        "(getComputedStyle(document.body))"
    )
    assert abs(ink - paper) > 500
    assert (paper > ink) == (scheme == "light")


def test_a_model_without_attention_has_a_page_without_the_viewer(opened):
    browser = opened(_page(attention=[]))
    visible = "[...document.querySelectorAll('section')].filter((s) => !s.hidden)"
    assert browser.evaluate(f"{visible}.map((s) => s.id)") == [
        "curves",
        "scores",
        "samples",
        "configuration",
    ]


def test_a_page_of_a_name_alone_is_still_a_page(opened):
    browser = opened(RunPage(title="bare"))
    assert browser.evaluate("document.body.innerText").split() == [
        "attnjax",
        "run",
        "bare",
    ]


def test_the_policy_keeps_scripts_and_requests_out(browser, tmp_path):
    path = tmp_path / "page.html"
    write_run_page(path, _page())
    browser.open(path.as_uri())
    refused = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
    violation = (
        "new Promise((tell) => { document.addEventListener('securitypolicyviolation',"
        "(event) => tell(event.effectiveDirective)); {act} })"
    )
    assert browser.evaluate(refused) == "refused"
    act = "const added = document.createElement('script'); added.textContent = '1';"
    act += "document.body.append(added);"
    found = browser.evaluate(violation.replace("{act}", act))
    assert found == "script-src-elem"
    found = browser.evaluate(violation.replace("{act}", f"{refused};"))
    assert found == "connect-src"


def test_without_a_browser_the_skip_is_loud(monkeypatch):
    monkeypatch.delenv("CHROME", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    with (
        pytest.warns(UserWarning, match="apt-get install chromium"),
        pytest.raises(pytest.skip.Exception, match="nobody has looked at the page"),
    ):
        _browser_or_skip(_driver())
