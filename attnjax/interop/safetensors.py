"""Reading the safetensors format: named arrays in one file, nothing that can run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

_PREFIX_BYTES = 8  # the length of the header
_LONGEST_HEADER_BYTES = 100_000_000  # the limit of the format's own library
_ENTRY_FIELDS = {"dtype", "shape", "data_offsets"}
_DTYPES: Mapping[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(jnp.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U8": np.dtype("u1"),
}


class _Entry(NamedTuple):
    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int  # bytes from the end of the header
    end: int


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Reads every array of a safetensors file.

    The file is eight bytes that hold the length of a header (little-endian), the header
    (JSON: name to type, shape, and begin and end in the data) and the data. All that
    the header claims is held against the size of the file before anything is read.

    Args:
        path: the file.

    Returns:
        Name to array, in the type it is stored in; ``__metadata__`` is left out.

    Raises:
        ValueError: if it is not such a file, is cut short or is damaged, or has an
            array of a type that is none of float, bfloat16 and integer.

    Source: the format's description at https://github.com/huggingface/safetensors.
    """
    size = path.stat().st_size
    if size < _PREFIX_BYTES:
        raise _damaged(path, f"it has {size} bytes, fewer than the 8 before its header")
    content = np.memmap(path, np.uint8, mode="r")
    length = int.from_bytes(content[:_PREFIX_BYTES].tobytes(), "little")
    longest = min(size - _PREFIX_BYTES, _LONGEST_HEADER_BYTES)
    if length > longest:
        raise _damaged(
            path, f"it claims a header of {length} bytes where at most {longest} fit"
        )
    header = _header(path, content[_PREFIX_BYTES : _PREFIX_BYTES + length].tobytes())
    data = content[_PREFIX_BYTES + length :]
    entries = {name: _entry(path, name, value) for name, value in header.items()}
    _require_seamless(path, entries.values(), len(data))
    return {name: _array(path, name, entry, data) for name, entry in entries.items()}


def _header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"its header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    header.pop("__metadata__", None)
    return header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _entry(path: Path, name: str, value: Any) -> _Entry:
    if not isinstance(value, dict) or set(value) != _ENTRY_FIELDS:
        raise _damaged(path, f"the entry {name!r:.80} has not dtype, shape and offsets")
    shape, offsets = value["shape"], value["data_offsets"]
    if not _is_counts(shape) or not _is_counts(offsets) or len(offsets) != 2:
        raise _damaged(path, f"the shape or offsets of {name!r:.80} are no counts")
    if not isinstance(value["dtype"], str) or value["dtype"] not in _DTYPES:
        raise ValueError(
            f"{path}: {name!r:.80} must be of one of the types {', '.join(_DTYPES)}, "
            f"got {value['dtype']!r:.20}; save it in one of them."
        )
    dtype = _DTYPES[value["dtype"]]
    begin, end = offsets
    needed = math.prod(shape) * dtype.itemsize
    if end - begin != needed:
        raise _damaged(
            path,
            f"{name!r:.80} needs {needed} bytes for its shape, its offsets give "
            f"{end - begin}",
        )
    return _Entry(dtype, tuple(shape), begin, end)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(number) is int and number >= 0 for number in value
    )


def _require_seamless(path: Path, entries: Iterable[_Entry], size: int) -> None:
    """Refuses arrays that overlap, leave a gap, or end elsewhere than the file."""
    end = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise _damaged(path, f"its data has a gap or an overlap at byte {end}")
        end = entry.end
    if end != size:
        raise _damaged(path, f"its arrays need {end} bytes of data, it has {size}")


def _array(path: Path, name: str, entry: _Entry, data: np.ndarray) -> np.ndarray:
    try:
        values = np.array(data[entry.begin : entry.end])  # a copy: the file may change
        return values.view(entry.dtype).reshape(entry.shape)
    except (ValueError, OverflowError) as error:  # an empty array of absurd shape
        raise _damaged(path, f"{name!r:.80} has an impossible shape") from error


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path} is not a whole safetensors file: {why}; fetch or save it again."
    )
