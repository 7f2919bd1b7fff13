"""Safetensors files: read what is there, refuse what is damaged or absurd."""

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.interop.safetensors import read_safetensors

FOUR_BYTES = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    return length.to_bytes(8, "little") + text + data


def write(folder, content):
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_reads_every_array_in_its_own_type_and_shape(tmp_path):
    arrays = {
        "matrix": np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5,
        "half": np.array([1.5, -2.0], np.float16),
        "brain": np.array([1.0, -2.5, 3.0], jnp.bfloat16),
        "counts": np.array([[7], [-1]], np.int64),
        "scalar": np.array(0.25, np.float64),
        "empty": np.zeros((0, 4), np.float32),
    }
    types = dict(zip(arrays, ("F32", "F16", "BF16", "I64", "F64", "F32"), strict=True))
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        begin, data = len(data), data + array.tobytes()
        header[name] = entry(types[name], list(array.shape), begin, len(data))
    text = json.dumps(header).encode() + b"   "  # writers align the data with spaces
    found = read_safetensors(write(tmp_path, file_of(text, data)))
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, strict=True)


HOSTILE = {
    "nothing": (b"", "0 bytes"),
    "too short": (b"\x01\x00", "2 bytes"),
    "absurd header": (b"\xff" * 8 + b"{}", f"{2**64 - 1} bytes where at most 2 fit"),
    "cut header": (file_of({"a": FOUR_BYTES})[:-9], "claims a header"),
    "no JSON": (file_of(b"{'a': 1}"), "not valid JSON"),
    "no UTF-8": (file_of(b'{"\xff": 1}'), "not valid JSON"),
    "deep JSON": (file_of(b"[" * 100_000), "not valid JSON"),
    "huge number": (file_of(b"9" * 9_999), "not valid JSON"),
    "list": (file_of([]), "not a JSON object"),
    "twice": (file_of(b'{"a": 1, "a": 2}'), "occurs twice"),
    "entry": (file_of({"a": 3}), "dtype, shape and offsets"),
    "member": (file_of({"a": {**FOUR_BYTES, "x": 1}}), "dtype, shape and offsets"),
    "negative": (file_of({"a": entry("F32", [-1], 4, 0)}, b"1234"), "no counts"),
    "offsets": (file_of({"a": {**FOUR_BYTES, "data_offsets": [0]}}), "no counts"),
    "bool": (file_of({"a": entry("F32", [True], 0, 4)}, b"1234"), "no counts"),
    "shape": (file_of({"a": entry("F32", [2], 0, 4)}, b"1234"), "needs 8 bytes"),
    "overlap": (
        file_of({"a": FOUR_BYTES, "b": entry("F32", [1], 2, 6)}, b"123456"),
        "gap or an overlap at byte 4",
    ),
    "gap": (file_of({"a": entry("F32", [1], 4, 8)}, b"12345678"), "at byte 0"),
    "cut data": (file_of({"a": FOUR_BYTES}, b"123"), "need 4 bytes of data, it has 3"),
    "more data": (file_of({"a": FOUR_BYTES}, b"12345"), "need 4 bytes"),
    "beyond": (file_of({"a": entry("U8", [10**30], 0, 10**30)}), "it has 0"),
    "empty and absurd": (
        file_of({"a": entry("F32", [0, 10**30], 0, 0)}),
        "impossible shape",
    ),
    "too many axes": (file_of({"a": entry("U8", [0] * 99, 0, 0)}), "impossible shape"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damage_is_named_in_one_sentence(name, tmp_path):
    content, why = HOSTILE[name]
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        read_safetensors(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_type_that_is_not_read_is_named(tmp_path):
    path = write(tmp_path, file_of({"a": entry("F8_E4M3", [1], 0, 1)}, b"1"))
    with pytest.raises(ValueError, match=r"'a' must be of .*F32.*, got 'F8_E4M3'"):
        read_safetensors(path)
