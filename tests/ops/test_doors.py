"""Every door of `attnjax.ops`: what does not fit is refused in a sentence.

A new entry of the catalog, and a new function that takes query, key, value and mask, is
covered without an edit here.
"""

import functools
import importlib
import inspect
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attnjax.ops
from attnjax.ops import (
    favor,
    graph,
    hard,
    recurrence,
    reinforce,
    relative,
    scorers,
    selection,
)
from attnjax.ops.attend import attend
from attnjax.ops.axial import axial_attention_2d
from attnjax.ops.catalog import CATALOG, MECHANISMS
from attnjax.ops.dropout import dropout
from attnjax.ops.entry import Sizes
from attnjax.ops.positions import sinusoids
from attnjax.ops.softmax import masked_softmax
from attnjax.types import Mask

B = H = 2  # so that a mask of the batch would pass for one of the heads
S, K, V = 7, 12, 14
SIZES = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=S)
QUERY, KEY, VALUE = (np.ones((B, H, S, width), np.float32) for width in (K, K, V))
VALID = np.ones((B, 1, S), bool)
SEGMENTS = np.ones((B, 1, S), np.int32)
every = pytest.mark.parametrize("name", CATALOG)


def options_of(name):
    """The default options, and arrays of zeros for those that a mechanism owns."""
    line = CATALOG[name]
    options = line.chosen(MECHANISMS.fill(name, {"clusters": 2}), SIZES)
    makers = [make for make in (line.parameters, line.buffers) if make is not None]
    return options, {
        owned: np.zeros(parameter.shape, np.float32)
        for make in makers
        for owned, parameter in make(SIZES, **options).items()
    }


def segments(query_segments, key_segments):
    return Mask(query_segments=query_segments, key_segments=key_segments)


ARRAYS = {  # query, key, value and what the sentence says
    "a value too few": (QUERY, KEY, VALUE[:, :, 1:], "7 keys and 6 values"),
    "narrow keys": (QUERY, KEY[..., 1:], VALUE, "equal width, got 12 and 11"),
    "a query without heads": (QUERY[0], KEY, VALUE, "of one rank"),
    "another batch": (QUERY, KEY, np.ones((3, H, S, V), np.float32), "that broadcast"),
    "no width": (QUERY[0, 0, 0], KEY[0, 0, 0], VALUE[0, 0, 0], "of one rank"),
    "an integer query": (QUERY.astype(int), KEY, VALUE, "query must hold floats"),
    "an integer key": (QUERY, KEY.astype(int), VALUE, "key must hold floats"),
    "an integer value": (QUERY, KEY, VALUE.astype(int), "value must hold floats"),
    "a boolean value": (QUERY, KEY, VALUE > 0, "must hold floats, got bool"),
    "a list": (QUERY, KEY.tolist(), VALUE, "key must be an array, got list"),
    "none": (QUERY, KEY, None, "value must be an array, got NoneType"),
    "no positions": (QUERY[:, :, :0], KEY[:, :, :0], VALUE[:, :, :0], "at least one"),
    "no rows": (QUERY[:0], KEY[:0], VALUE[:0], "no axis of length 0"),
    "no key width": (QUERY[..., :0], KEY[..., :0], VALUE, "no axis of length 0"),
    "no value width": (QUERY, KEY, VALUE[..., :0], "no axis of length 0"),
}
MASKS = {
    "none": (None, r"facts of a mask, got None; pass Mask\(\)"),
    "an array": (VALID, r"facts of a mask, got an array \(2, 1, 7\)"),
    "a key too few": (Mask(valid=VALID[..., 1:]), r"\(2, 2, 7\).*got \(2, 1, 6\)"),
    "one key": (Mask(valid=VALID[..., :1]), r"valid must have the shape \(2, 2, 7\)"),
    "no head axis": (Mask(valid=VALID[:, 0]), r"got \(2, 7\). Mask.over_heads\(\)"),
    "an axis too many": (Mask(valid=VALID[None]), "valid must have the shape"),
    "three rows": (Mask(valid=np.ones((3, 1, S), bool)), r"got \(3, 1, 7\)"),
    "integers": (Mask(valid=VALID.astype(int)), "must hold booleans.*got int64.*!= 0"),
    "a list": (Mask(valid=VALID.tolist()), "valid must be an array, got list"),
    "short segments": (segments(SEGMENTS, SEGMENTS[..., 1:]), "key_segments must"),
    "of other queries": (segments(SEGMENTS[..., 1:], SEGMENTS), "query_segments must"),
    "segments per row": (segments(SEGMENTS[:, 0], SEGMENTS[:, 0]), "over_heads"),
    "real segments": (segments(SEGMENTS * 1.0, SEGMENTS * 1.0), "must hold integers"),
}


@every
def test_arrays_and_masks_that_do_not_fit(name):
    options, owned = options_of(name)
    run = functools.partial(CATALOG[name].attend, **options, **owned)
    for query, key, value, sentence in ARRAYS.values():
        with pytest.raises(ValueError, match=sentence):
            run(query, key, value, Mask())
    for mask, sentence in MASKS.values():
        with pytest.raises(ValueError, match=sentence):
            run(QUERY, KEY, VALUE, mask)


@every
def test_arrays_that_a_mechanism_owns(name):
    options, owned = options_of(name)
    run = functools.partial(CATALOG[name].attend, QUERY, KEY, VALUE, Mask(), **options)
    if owned and name != "memory_compressed":  # whose means need no kernels
        with pytest.raises(ValueError, match=r"needs .*Entry.draw makes them"):
            run()
    for array_name, array in owned.items():
        if array.ndim:
            for wrong in (array[..., 1:, 1:], array.astype(int), array.tolist()):
                with pytest.raises(ValueError, match="must|has projections for"):
                    run(**{**owned, array_name: wrong})
    if not any(array.ndim > 2 for array in owned.values()):
        return
    three_heads, no_heads = np.ones((B, 3, S, K), np.float32), QUERY[0, 0]
    for array, axes in ((three_heads, r"\(2, 3\)"), (no_heads, r"\(\)")):
        with pytest.raises(ValueError, match=f"made for the leading axes {axes}"):
            CATALOG[name].attend(array, array, array, Mask(), **options, **owned)


@pytest.mark.parametrize(
    "name", [name for name, line in CATALOG.items() if line.accepts_bias]
)
def test_bias_of_other_heads(name):
    options, owned = options_of(name)
    run = functools.partial(CATALOG[name].attend, **options, **owned)
    with pytest.raises(ValueError, match=r"for 3 heads, but the scores are \(2, 2, 7"):
        run(QUERY, KEY, VALUE, Mask(), bias=relative.alibi(3))
    with pytest.raises(ValueError, match="bias must be a function of offsets"):
        run(QUERY, KEY, VALUE, Mask(), bias=np.ones((H, S, S)))
    with pytest.raises(ValueError, match=r"for 2 heads, but the scores are \(7, 7\)"):
        run(QUERY[0, 0], KEY[0, 0], VALUE[0, 0], Mask(), bias=relative.alibi(H))


@pytest.mark.parametrize(
    "name", [name for name, line in CATALOG.items() if line.incremental]
)
def test_steps(name):
    options, owned = options_of(name)
    begin, step, _ = CATALOG[name].incremental
    cache = begin(B, S, SIZES, jnp.float32, **options)
    run = functools.partial(step, **options, **owned)
    query, key, value = QUERY[:, :, :1], KEY[:, :, :1], VALUE[:, :, :1]
    position = np.zeros(B, np.int32)
    for inputs, cache_, where, sentence in (
        ((QUERY[:, :, :2], KEY[:, :, :2], VALUE[:, :, :2]), cache, position, "one pos"),
        ((query, key[:1], value), cache, position, "takes one position"),
        ((query.astype(int), key, value), cache, position, "must hold floats"),
        ((query, key, value), cache, np.zeros((B, 1), np.int32), "each of 2 rows"),
        ((query, key, value), cache, np.zeros(B), "must hold integers"),
        ((query[:1], key[:1], value[:1]), cache, position[:1], "each of 1 rows"),
    ):
        with pytest.raises(ValueError, match=sentence):
            run(*inputs, cache_, where)


def functions_like_a_mechanism():
    for module in pkgutil.iter_modules(attnjax.ops.__path__):
        module = importlib.import_module(f"attnjax.ops.{module.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            names = [*inspect.signature(function).parameters][:4]
            is_own = function.__module__ == module.__name__
            attends = inspect.signature(function).return_annotation == "Attended"
            if is_own and attends and names == ["query", "key", "value", "mask"]:
                yield pytest.param(function, id=name)


@pytest.mark.parametrize("function", functions_like_a_mechanism())
def test_functions_have_the_door_of_their_entry(function):
    required = [
        keyword.name
        for keyword in inspect.signature(function).parameters.values()
        if keyword.default is keyword.empty and keyword.kind is keyword.KEYWORD_ONLY
    ]
    with pytest.raises(ValueError, match="7 keys and 6 values"):
        function(QUERY, KEY, VALUE[:, :, 1:], Mask(), **dict.fromkeys(required, 2))


def test_the_door_is_at_trace_time():
    run = jax.jit(CATALOG["dense"].attend)
    with pytest.raises(ValueError, match="7 keys and 6 values"):
        run(QUERY, KEY, VALUE[:, :, 1:], Mask())


EDGES = graph.Edges(np.array([0, 1]), np.array([1, 1]))
NODES = np.ones((3, H, V), np.float32)
ROWS = np.ones((B, S), np.float32)
SCORES = np.ones((B, H, S, S), np.float32)
PAIRS = np.ones((B, S), bool)
GATES = functools.partial(np.ones, dtype=np.float32)
OTHER_DOORS = {
    "softmax of a lower rank": lambda: masked_softmax(SCORES, PAIRS),
    "softmax of integers": lambda: masked_softmax(SCORES.astype(int), None),
    "softmax of numbers": lambda: masked_softmax(SCORES, SCORES),
    "attend": lambda: attend(SCORES, VALUE[:, :, 1:], Mask()),
    "attend by rows": lambda: attend(SCORES, VALUE, Mask(valid=PAIRS)),
    "grid": lambda: axial_attention_2d(QUERY, KEY[:, :1], VALUE),
    "grid of one row": lambda: axial_attention_2d(QUERY, KEY, VALUE, VALID[..., 1:]),
    "dot": lambda: scorers.dot_scores(QUERY.astype(int), KEY),
    "general": lambda: scorers.general_scores(QUERY, KEY, np.ones((K, K - 1))),
    "additive": lambda: scorers.additive_scores(QUERY, KEY, GATES(K - 1)),
    "additive keys": lambda: scorers.additive_scores(QUERY, KEY[..., 1:], GATES(K)),
    "concat": lambda: scorers.concat_scores(QUERY, KEY, GATES((K, 3)), GATES(3)),
    # Arrays of another rank, with as many rows as heads: never read as one of a head.
    "dot of rows": lambda: scorers.dot_scores(QUERY[:, 0], KEY),
    "scaled dot of rows": lambda: scorers.scaled_dot_scores(QUERY, KEY[:, 0]),
    "additive rows": lambda: scorers.additive_scores(QUERY[:, 0], KEY, GATES(K)),
    "choice by rows": lambda: hard.choose(SCORES, PAIRS[:, None]),
    "choice of integers": lambda: hard.choose(SCORES.astype(int), None),
    "choice by noise of rows": lambda: hard.choose(SCORES, None, SCORES[:, 0]),
    "relaxed by rows": lambda: hard.straight_through(SCORES, PAIRS[:, None]),
    "temperature": lambda: hard.straight_through(SCORES, None, None, 0.0),
    "entropy by rows": lambda: hard.entropy(SCORES, PAIRS[:, None]),
    "probability by rows": lambda: hard.log_probability(SCORES, None, SCORES[:, 0]),
    "local rows": lambda: selection.local_weights(
        SCORES,
        np.ones((B, 1, S), int),
        GATES((B, H, S)),
        None,
        window=2,
        gaussian=False,
    ),
    "graphs": lambda: graph.graph_attention(GATES((2, H)), NODES[None], EDGES, 3),
    "scores of graphs": lambda: graph.segment_softmax(GATES((2, 2, H)), EDGES, 3),
    "features of graphs": lambda: graph.gat_scores(
        NODES[None], GATES((H, V)), GATES((H, V)), EDGES
    ),
    "loops": lambda: graph.with_self_loops(EDGES._replace(target=np.array([1])), 3),
    "features of heads": lambda: favor.favor_attention(
        *(array[0, 0] for array in (QUERY, KEY, VALUE)),
        Mask(),
        projection=GATES((H, 8, K)),
    ),
    "location": lambda: scorers.location_scores(QUERY, GATES((K - 1, S)), S),
    "edges": lambda: graph.graph_attention(GATES((3, H)), NODES, EDGES, 3),
    "heads": lambda: graph.graph_attention(GATES((2, 3)), NODES, EDGES, 3),
    "node values": lambda: graph.graph_attention(
        GATES((2, H)), NODES.astype(int), EDGES, 3
    ),
    "real edges": lambda: graph.segment_softmax(
        GATES((2, H)), EDGES._replace(target=GATES(2)), 3
    ),
    "valid edges": lambda: graph.segment_softmax(
        GATES((2, H)), EDGES._replace(valid=np.ones(1, bool)), 3
    ),
    "gat": lambda: graph.gat_scores(NODES, GATES((H, V)), GATES((H, 1)), EDGES),
    "gatv2": lambda: graph.gatv2_scores(NODES, NODES[:, :1], GATES((H, V)), EDGES),
    "gru": lambda: recurrence.gru_update(
        GATES((B, 4 * K)), GATES((B, 3 * K)), (GATES((B, K)),)
    ),
    "gru rows": lambda: recurrence.gru_update(
        GATES((1, 3 * K)), GATES((B, 3 * K)), (GATES((B, K)),)
    ),
    "lstm": lambda: recurrence.lstm_update(
        GATES((B, 4 * K)), GATES((B, 4 * K)), (GATES((B, K)), GATES((1, K)))
    ),
    "lengths": lambda: recurrence.reverse_by_length(GATES((S, B)), np.array([S])),
    "last": lambda: recurrence.last_real(GATES((S, B, K)), np.array([S])),
    "top_k": lambda: selection.top_k_weights(SCORES, PAIRS, 2),
    "no top_k": lambda: selection.top_k_weights(SCORES, None, 0),
    "local": lambda: selection.local_weights(
        SCORES, np.ones((1, 1, 1, S), int), ROWS, None, window=2, gaussian=False
    ),
    "centre": lambda: selection.predicted_centre(
        QUERY, GATES((K, 3)), GATES(3), np.array([S, S])
    ),
    "centre width": lambda: selection.predicted_centre(
        QUERY[0], GATES((K - 1, 3)), GATES(3), np.array([S, S])
    ),
    "monotonic": lambda: selection.monotonic_centre(
        np.ones((B, S), int), np.array([S])
    ),
    "rotary": lambda: relative.rotate(QUERY, np.ones((B, S), int)),
    "rotary positions": lambda: relative.rotate(QUERY, np.ones((1, 1, S - 1), int)),
    "alibi": lambda: relative.alibi(0),
    "buckets": lambda: relative.bucketed_bias(GATES(32), bidirectional=True),
    "sinusoids": lambda: sinusoids([0, 1], 4),
    "baseline": lambda: reinforce.empty_baseline().moved(ROWS, ROWS[:, :1], 0.9),
    "advantages": lambda: reinforce.advantages(ROWS, ROWS[:, :1], np.float32(0)),
    "surrogate": lambda: reinforce.surrogate(ROWS, ROWS[:1], ROWS),
    "dropout": lambda: dropout(ROWS.astype(int), 0.5, jax.random.key(0)),
    "window": lambda: Mask(window=3),
    "window of three": lambda: Mask(window=(1, 2, 3)),
    "broken window": lambda: Mask(window=(1.5, 2)),
    "causal": lambda: Mask(causal=np.array(True)),
    "facts": lambda: Mask(valid=[True, False]).over_heads(),
}


@pytest.mark.parametrize("name", OTHER_DOORS)
def test_other_functions(name):
    with pytest.raises(ValueError, match=r"(must|needs?|takes|knows) .*"):
        OTHER_DOORS[name]()
