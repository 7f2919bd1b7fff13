"""JSON from a stranger is bounded in size and depth, and wrong in one sentence."""

import os

import pytest

from attnjax.json_files import MOST_LEVELS, parse_json, read_bounded, read_json, shown


def test_plain_json_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"ä": [1, 2.5, null]}', encoding="utf-8")
    assert read_json(tmp_path / "a.json") == {"ä": [1, 2.5, None]}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "\x00", b"\xff\xfe\xff", "[" * 99_999, "1" * 5_000],
    ids=["empty", "open", "comma", "nul", "bytes", "deep", "digits"],
)
def test_what_is_no_json_is_a_sentence_with_the_file(text):
    with pytest.raises(ValueError, match=r"^f\.json is not valid JSON") as caught:
        parse_json(text, origin="f.json")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_bounded(opening, closing):
    def nested(levels):
        return opening * levels + "1" + closing * levels

    parse_json(nested(MOST_LEVELS), origin="f.json")
    parse_json("[" + nested(MOST_LEVELS - 1) + ",[]]", origin="f.json")
    for levels in (MOST_LEVELS + 1, 400):
        with pytest.raises(ValueError, match=r"f\.json nests .* more than 50 deep"):
            parse_json(nested(levels), origin="f.json")


def test_size_is_bounded(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b" " * 10)
    assert read_bounded(path, most_bytes=10) == b" " * 10
    with pytest.raises(ValueError, match=r"a\.json has 10 bytes, but at most 9 are"):
        read_bounded(path, most_bytes=9)
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(ValueError, match=r"100,000,000 bytes, but at most 16,777,216"):
        read_json(path)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe", "device", "dangling"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "a.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"a\.json must be a regular file"):
        read_json(path)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder, outside = tmp_path / "run", tmp_path / "outside.json"
    folder.mkdir()
    outside.write_text("1")
    (folder / "a.json").symlink_to("../outside.json")
    with pytest.raises(ValueError, match=r"a\.json is a link out of its folder"):
        read_json(folder / "a.json")
    (folder / "b.json").write_text("2")
    (folder / "c.json").symlink_to("b.json")
    assert read_json(folder / "c.json") == 2
    (tmp_path / "link").symlink_to(folder)
    assert read_json(tmp_path / "link" / "b.json") == 2


def test_long_values_are_cut_in_messages():
    assert shown([1, "a"]) == "[1, 'a']"
    assert shown("x" * 1_000) == f"'{'x' * 79}... (1,002 characters)"
