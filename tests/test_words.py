"""Words of languages with and without spaces, by ICU and without it."""

import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnjax import words
from attnjax.words import has_spaces, word_cut, words_of

LINES = {
    "ja": ("私は日本語の文章を分割する。", "私 は 日本語 の 文章 を 分割 する 。"),
    "zh_Hant": ("我們今天去學校。OK 12", "我們 今天 去 學校 。 OK 12"),
    "th": ("วันนี้อากาศดี ไปกัน", "วัน นี้ อากาศ ดี ไป กัน"),
    "km": ("សួស្តីពិភពលោក", "សួស្តី ពិភពលោក"),
}


@pytest.mark.parametrize("language", LINES)
def test_icu_cuts_where_the_language_does(language):
    line, expected = LINES[language]
    assert words_of(line, language) == tuple(expected.split())
    assert word_cut(language) == "icu"


def test_languages_with_spaces_are_cut_at_any_white_space():
    line = " Der Hund\u00a0bellt,\tlaut. "
    assert words_of(line, "de") == ("Der", "Hund", "bellt,", "laut.")
    assert words_of("친구를 만났다", "ko_KR") == ("친구를", "만났다")
    assert word_cut("de") == "spaces"


def test_without_icu_letters_are_words_with_their_marks(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert word_cut("th") == "characters"
    assert words_of("ดีนี้ มา", "th") == ("ดี", "นี้", "ม", "า")
    found = words_of("犬が2匹、Ame\u0301lie 12本", "ja")
    assert found == tuple("犬 が 2 匹 、 Ame\u0301lie 12 本".split(" "))


def test_a_zero_width_space_ends_a_word():
    for cut in ("icu", "characters"):
        assert words_of("ab\u200bcd", "km", cut=cut) == ("ab", "cd")


@pytest.mark.parametrize("cut", ["icu", "characters"])
@given(line=st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ดี犬🤗 "))))
def test_words_joined_are_the_line_without_its_white_space(cut, line):
    found = words_of(line, "ja", cut=cut)
    assert "".join(found) == "".join(line.replace("\u200b", " ").split())
    assert all(found)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        *[(code, True) for code in ("de", "pt-BR", "ko", "kor_Hang", "vie_Latn", "")],
        *[(code, False) for code in ("zh", "ZH-CN", "yue", "jpn_Jpan", "tha", "bo")],
    ],
)
def test_languages_that_have_spaces(language, expected):
    assert has_spaces(language) is expected
    assert words.base_language("zho_Hans") == "zho"
