"""The page of a run as a file: what it holds, and what it cannot be made to hold."""

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from attnjax.diagnostics.attention_map import AttentionMap
from attnjax.diagnostics.run_page import (
    AttentionExample,
    RunPage,
    Sample,
    run_page_html,
    write_run_page,
)

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "]]></style></title><img src=x onerror=alert(1)>",
    "a\u2028b\u2029c\x85d\re\nf\x00g",
    "&lt;b&gt; &amp; \"quoted\" 'too' \\u003c",
    "{{data}} {{script}} \\1 $& ${page}",
    "half a pair \ud83d and 🤗, 我们, שלום",
    "\ufeff",
]


class Reader(HTMLParser):
    """Collects elements as a browser would see them."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts = [], []
        self.inside = False  # an element without inner ones, as those read here are
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data

    def all(self, tag):
        return [
            (attributes, text)
            for (name, attributes), text in zip(self.elements, self.texts, strict=True)
            if name == tag
        ]


def data_of(text):
    (found,) = [
        content
        for attributes, content in Reader(text).all("script")
        if attributes.get("id") == "data"
    ]
    return json.loads(found)


def page(**parts):
    return RunPage(**{"title": "run", **parts})


def example(weights, name="cross"):
    return AttentionExample(sentence="s", layers={name: attention(weights)})


def attention(weights):
    num_targets, num_sources = np.shape(weights)[-2:]
    return AttentionMap(
        weights=weights,
        queries=[f"t{index}" for index in range(num_targets)],
        keys=[f"s{index}" for index in range(num_sources)],
    )


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup_and_every_text_comes_back(tmp_path, text):
    path = tmp_path / "new" / "page.html"
    shown = page(
        title=text,
        configuration={text: {"type": text}},
        scores={"split": text, "bleu": 1.0, "bleu_signature": text},
        samples=[Sample(source=text, output=text, reference=text)],
        attention=[
            AttentionExample(
                sentence=text,
                layers={
                    text: AttentionMap(
                        weights=[[[1.0]]],
                        queries=[text],
                        keys=[text],
                        query_axis=text,
                        key_axis=text,
                        heads=[text],
                    )
                },
            )
        ],
        records=[{"event": "validation", "step": 1, text: 2.0}],
    )
    if "\ud83d" not in text:
        write_run_page(path, shown)
        assert path.read_bytes().decode("utf-8") == run_page_html(shown)
    found = run_page_html(shown)
    plain = Reader(run_page_html(page()))
    assert [tag for tag, _ in Reader(found).elements] == [
        tag for tag, _ in plain.elements
    ]
    data = data_of(found)
    assert data["title"] == text
    assert data["configuration"] == {text: {"type": text}}
    assert data["scores"]["split"] == text
    assert data["samples"] == [{"source": text, "output": text, "reference": text}]
    assert data["attention"][0]["sentence"] == text
    layer = data["attention"][0]["layers"][0]
    assert layer["queries"] == layer["keys"] == layer["heads"] == [text]
    assert layer["name"] == layer["query_axis"] == layer["key_axis"] == text
    assert data["curves"]["validation"] == {text: {"steps": [1], "values": [2.0]}}


def test_half_a_surrogate_pair_in_the_title_does_not_stop_the_file(tmp_path):
    path = tmp_path / "page.html"
    write_run_page(path, page(title="a\ud83db <b>"))
    ((_, title),) = Reader(path.read_bytes().decode("utf-8")).all("title")
    assert title == "a\ufffdb <b>"


def test_data_is_ascii_without_line_ends_or_markup():
    shown = page(samples=[Sample(source=text, output="") for text in HOSTILE])
    text = re.search(r'id="data">(.*?)</script>', run_page_html(shown), re.S)[1]
    assert text.isascii()
    assert not re.search(r"[<>&\n\r\x00]", text)


def test_the_policy_allows_this_script_and_this_style_and_nothing_else():
    reader = Reader(run_page_html(page(title="x")))
    ((_, style),) = reader.all("style")
    (script,) = [text for attributes, text in reader.all("script") if not attributes]

    def source(text):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    (policy,) = [
        attributes["content"]
        for attributes, _ in reader.all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "script-src": source(script),
        "style-src": source(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_nothing_is_loaded_from_elsewhere():
    reader = Reader(run_page_html(page()))
    assert not {"link", "img", "iframe", "object"} & {tag for tag, _ in reader.elements}
    for _, attributes in reader.elements:
        assert not {"src", "href", "style", "onload"} & set(attributes)
    text = "".join(reader.texts)
    assert not re.search(r"@import|url\(|\bfetch\b|XMLHttpRequest|innerHTML|eval", text)
    assert re.findall(r"\w+://[^\"\s]+", text) == ["http://www.w3.org/2000/svg"]


def test_weights_are_kept_to_three_digits_by_name_and_head():
    weights = np.random.default_rng(0).dirichlet(np.ones(7), (2, 5))
    shown = page(attention=[example(weights, "decoder/cross")])
    ((layer,),) = [one["layers"] for one in data_of(run_page_html(shown))["attention"]]
    assert layer["name"] == "decoder/cross"
    found = np.array(layer["weights"])
    assert found.shape == (2, 5, 7)
    np.testing.assert_allclose(found / 1000, weights, rtol=0, atol=5.1e-4)


def test_a_page_with_much_attention_stays_small():
    weights = np.random.default_rng(0).dirichlet(np.full(30, 0.1), (8, 30))
    six_layers = {f"layer {number}": attention(weights) for number in range(6)}
    one = AttentionExample(sentence="s", layers=six_layers)
    assert len(run_page_html(page(attention=[one]))) < 43_200 * 4 + 44_000


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full((1, 2, 3), np.nan), "between 0 and 1"),
        (np.full((1, 2, 3), -0.1), "between 0 and 1"),
        (np.full((1, 2, 3), 1.1), "between 0 and 1"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(weights, message):
    wrong = example(weights, "deep")
    right = example(np.ones((1, 1, 1)))
    with pytest.raises(ValueError, match=f"(?s){message}.*sentence 2, deep"):
        run_page_html(page(attention=[right, wrong]))


def test_a_sentence_without_weights_is_refused():
    empty = AttentionExample(sentence="a", layers={})
    with pytest.raises(ValueError, match="sentence 1 has no attention weights"):
        run_page_html(page(attention=[empty]))


def test_rounding_may_exceed_one_by_a_little():
    run_page_html(page(attention=[example(np.full((1, 1, 1), 1 + 1e-6))]))


def test_curves_are_those_of_the_log_with_gaps():
    records = [
        {"event": "train", "step": 10, "loss": 9.0, "nll": 4.0, "learning_rate": 1e-3},
        {"event": "train", "step": 20, "loss": math.inf, "timing": {"seconds": 1.0}},
        {"event": "validation", "step": 20, "loss": 1 / 3, "bleu": None},
        {"event": "train", "step": 20, "loss": 3.0},
    ]
    assert data_of(run_page_html(page(records=records)))["curves"] == {
        "train": {"nll": {"steps": [10, 20], "values": [4.0, 3.0]}},
        "validation": {
            "nll": {"steps": [20], "values": [0.333333]},
            "bleu": {"steps": [20], "values": [None]},
        },
    }


def test_numbers_that_json_lacks_become_null():
    shown = page(scores={"bleu": math.nan, "interval": (1.0, [math.inf])})
    assert data_of(run_page_html(shown))["scores"] == {
        "bleu": None,
        "interval": [1.0, [None]],
    }
