"""The laws that every mechanism of the catalog obeys, or refuses with an error.

A new entry of the catalog is covered by all of them without an edit here.
"""

import dataclasses
import functools
import inspect
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.attend import dense_attention
from attnjax.ops.catalog import CATALOG, MECHANISMS, entry, mechanism
from attnjax.ops.entry import FACTS, SLOTS, Sizes
from attnjax.ops.hard import HardChoice
from attnjax.ops.relative import alibi
from attnjax.types import Attended, Mask

B, H, T, S, K, V = 2, 3, 5, 7, 12, 14
if (
    "ATTNJAX_TEST_AS_USERS" in os.environ
):  # sizes that fill the lanes of vectorised loops
    T, S, K, V = 33, 65, 24, 40
FACT_MASKS = {
    "valid": Mask(valid=np.ones((B, 1, S), bool)),
    "causal": Mask(causal=True),
    "window": Mask(window=(1, 1)),
    "segments": Mask(
        query_segments=np.ones((1, 1, S), np.int32),
        key_segments=np.ones((1, 1, S), np.int32),
    ),
}
# Some laws read gradients under these facts, not in bfloat16; their programs serve all
# other laws too.
PULLED = {jax.tree.structure(FACT_MASKS[fact]) for fact in ("valid", "causal")}
# Small values of options, where the default is too large to matter for S keys.
OPTIONS = {
    "window": 2,
    "block": 2,
    "num_random": 1,
    "rank": 3,
    "stride": 2,
    "chunk": 3,
    "clusters": 2,
    "top_k": 2,
    "rounds": 2,
    "features": 8,
    "rows": 2,
    "temperature": 0.7,
    "redraw_every": 2,
}


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A mechanism ready to be called on ``[B, H, S, *]`` arrays.

    Attributes:
        name: in the catalog.
        options: of this mechanism.
        extras: its parameters and buffers.
        is_small: whether the options are the small ones.
    """

    name: str
    options: dict
    extras: dict
    is_small: bool

    @property
    def entry(self):
        return CATALOG[self.name]

    @functools.cached_property
    def compiled(self):
        """Compiled once for each shape, dtype and set of facts."""
        return jax.jit(functools.partial(self.entry.attend, **self.options))

    @functools.cached_property
    def compiled_pull(self):
        """The same with the gradients of ``context . cotangent``."""

        def run(inputs, mask, cotangent, extras):
            attend = functools.partial(self.entry.attend, **self.options)
            context, pull, weights = jax.vjp(
                lambda *x: attend(*x, mask, **extras), *inputs, has_aux=True
            )
            return Attended(context, weights), pull(cotangent.astype(context.dtype))

        return jax.jit(run)

    def __call__(self, query, key, value, mask):
        inputs = query, key, value
        is_pulled = self.is_small and jax.tree.structure(mask) in PULLED
        if is_pulled and query.shape[-2] == S and query.dtype != jnp.bfloat16:
            return self.pull(inputs, mask)[0]
        return jax.device_get(self.compiled(*inputs, mask, **self.extras))

    def pull(self, inputs, mask, cotangent=None):
        """What is attended to, and the gradients of query, key and value."""
        if cotangent is None:
            cotangent = np.zeros(inputs[2].shape, np.float32)
        got = self.compiled_pull(inputs, mask, cotangent, self.extras)
        return jax.device_get(got)

    def eager(self, query, key, value, mask, **more):
        attend = functools.partial(self.entry.attend, **self.options)
        return attend(query, key, value, mask, **self.extras, **more)

    def honours(self, *facts):
        return set(facts) <= set(self.entry.facts)


@functools.cache
def case(name, *, max_keys=S, **options):
    """Makes the case of a mechanism, `options` in place of the small ones."""
    line = CATALOG[name]
    chosen = MECHANISMS.fill(name, {**OPTIONS, **options})
    sizes = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=max_keys)
    extras = line.draw(jax.random.key(17), sizes, chosen)
    return Case(name, line.chosen(chosen), extras, is_small=not options)


@functools.cache
def arrays(num_queries=S, num_keys=S, dtype=jnp.float32, scale=1.0, seed=0):
    rngs = jax.random.split(jax.random.key(seed), 3)
    shapes = ((B, H, num_queries, K), (B, H, num_keys, K), (B, H, num_keys, V))
    return tuple(
        np.asarray(scale * jax.random.normal(rng, shape)).astype(dtype)
        for rng, shape in zip(rngs, shapes, strict=True)
    )


def ragged(causal=False):
    """Row 0 has all keys, row 1 the first three."""
    valid = np.arange(S)[None, :] < np.array([[S], [3]])
    return Mask(valid=valid, causal=causal).over_heads()


every = pytest.mark.parametrize("name", CATALOG)


def those(condition):
    names = [name for name, line in CATALOG.items() if condition(line)]
    return pytest.mark.parametrize("name", names)


causal = those(lambda line: "causal" in line.facts)
cross = those(lambda line: not line.self_only)


def masks_of(mechanism):
    """A ragged batch, and a causal one too where that is honoured."""
    return [ragged(), *([ragged(causal=True)] if mechanism.honours("causal") else [])]


@every
def test_entry_is_complete(name):
    line = CATALOG[name]
    assert set(line.facts) <= set(FACTS)
    assert set(line.slots) <= set(SLOTS)
    assert "valid" in line.facts, "padding must never be attended to"
    assert MECHANISMS.find(name) is line.options
    parameters = inspect.signature(line.attend).parameters.values()
    if not any(each.kind is each.VAR_KEYWORD for each in parameters):
        assert {*line.options.names()} <= {each.name for each in parameters}
    assert line.refusal or set(line.slots) == set(SLOTS)
    assert line.limit is not None or (line.limit_reason and line.reference)
    assert re.search(r"(19|20)\d\d", line.paper)
    assert ("decoder" in line.slots) == (line.incremental is not None)
    assert ("decoder" not in line.slots) or "causal" in line.facts
    assert ("cross" not in line.slots) or not line.self_only


@every
def test_masked_keys_never_matter(name):
    mechanism = case(name)
    query, key, value = arrays()
    for mask in masks_of(mechanism):
        hide = ~mask.valid[..., None]
        plain = mechanism(query, key, value, mask).context
        other = mechanism(
            *(query, np.where(hide, np.float32(50), key)),
            np.where(hide, np.float32(-50), value),
            mask,
        ).context
        real = np.broadcast_to(mask.valid[..., None], plain.shape)
        np.testing.assert_array_equal(plain[real], other[real])


@every
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_row_without_a_key_is_zero_with_finite_gradients(name, dtype):
    mechanism = case(name)
    low = arrays(dtype=dtype)
    valid = np.ones((B, S), bool)
    valid[1] = False
    mask = Mask(valid=valid).over_heads()
    context = mechanism(*low, mask).context
    assert context.dtype == dtype
    assert context.shape == (B, H, S, V)
    np.testing.assert_array_equal(context[1], 0.0)
    assert np.all(np.isfinite(context.astype(np.float32)))
    assert np.any(context[0] != 0.0)
    if dtype == jnp.bfloat16:
        return  # float16 takes the same path, with less range
    # The gradients of its squares.
    _, gradients = mechanism.pull(low, mask, 2 * context.astype(np.float32))
    for gradient in gradients:
        np.testing.assert_array_equal(gradient[1], 0.0)
        assert np.all(np.isfinite(gradient.astype(np.float32)))
        assert np.any(gradient[0] != 0.0)


@every
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_computes_in_float32(name, dtype):
    mechanism = case(name)
    low = arrays(dtype=dtype)
    exact = mechanism(*(x.astype(jnp.float32) for x in low), ragged()).context
    got = mechanism(*low, ragged()).context
    assert got.dtype == dtype
    tolerance = 0.04 if dtype == jnp.bfloat16 else 0.01
    np.testing.assert_allclose(
        got.astype(np.float32), exact, atol=tolerance * np.abs(exact).max()
    )


@every
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_large_scores_stay_finite(name, dtype):
    mechanism = case(name)
    context = mechanism(*arrays(dtype=dtype, scale=40.0), ragged()).context
    assert np.all(np.isfinite(context.astype(np.float32)))


@causal
def test_no_future_leak(name):
    mechanism = case(name)
    for position in range(S):
        cotangent = np.zeros((B, H, S, V), np.float32)
        cotangent[:, :, position] = 1.0
        _, (_, *gradients) = mechanism.pull(arrays(), Mask(causal=True), cotangent)
        for gradient in gradients:
            np.testing.assert_array_equal(gradient[:, :, position + 1 :], 0.0)
    # Every position but perhaps the first few sees something.
    assert np.any(gradients[1] != 0.0)


@causal
def test_later_tokens_change_nothing(name):
    mechanism = case(name)
    query, key, value = arrays()
    run = functools.partial(mechanism, mask=Mask(causal=True))
    plain = run(query, key, value).context
    for cut in (1, 4):
        later = np.arange(S)[:, None] >= cut
        changed = run(
            np.where(later, -query, query),
            np.where(later, np.float32(3), key),
            np.where(later, np.float32(-3), value),
        ).context
        np.testing.assert_array_equal(plain[..., :cut, :], changed[..., :cut, :])


@those(lambda line: line.incremental is not None)
@pytest.mark.parametrize("with_bias", [False, True])
def test_stepwise_equals_all_at_once(name, with_bias):
    mechanism = case(name)
    if with_bias and not mechanism.entry.accepts_bias:
        pytest.skip("takes no bias")
    more = {"bias": alibi(H)} if with_bias else {}
    query, key, value = arrays()
    attend = functools.partial(mechanism, mask=Mask(causal=True))
    if with_bias:
        attend = jax.jit(lambda *x: mechanism.eager(*x, Mask(causal=True), **more))
    whole = np.asarray(attend(query, key, value).context)
    begin, step, _ = mechanism.entry.incremental
    sizes = Sizes(H, K, V, S)
    cache = begin(B, S, sizes, jnp.float32, **mechanism.options)
    assert all(leaf.shape[0] == B for leaf in jax.tree.leaves(cache))

    @jax.jit
    def advance(rows, cache, position):
        options = mechanism.options
        return step(*rows, cache, position, **options, **mechanism.extras, **more)

    for position in range(S):
        here = slice(position, position + 1)
        rows = [x[:, :, here] for x in (query, key, value)]
        context, cache = advance(rows, cache, np.full(B, position, np.int32))
        np.testing.assert_allclose(
            context, whole[:, :, here], atol=1e-5, err_msg=str(position)
        )


@every
def test_alone_equals_in_a_padded_batch(name):
    mechanism = case(name)
    query, key, value = arrays()
    padded = mechanism(query, key, value, ragged()).context[1, :, :3]
    cut = [x[1:, :, :3] for x in (query, key, value)]
    if mechanism.entry.self_only or "window" in mechanism.entry.facts:
        mask = Mask(valid=np.ones((1, 1, 3), bool))
        if mechanism.honours("causal"):
            padded = mechanism(query, key, value, ragged(causal=True))
            padded, mask = padded.context[1, :, :3], Mask(causal=True)
        alone = mechanism(*cut, mask).context[0]
    else:
        alone = mechanism(*cut, Mask()).context[0]
    np.testing.assert_allclose(padded, alone, atol=1e-5)


@those(lambda line: "segments" in line.facts)
def test_packed_equals_unpacked(name):
    mechanism = case(name)
    query, key, value = arrays()
    segments = np.asarray([[1, 2, 2, 2, 3, 3, 3]], np.int32)
    for is_causal in [False, *([True] if mechanism.honours("causal") else [])]:
        mask = Mask(
            causal=is_causal, query_segments=segments, key_segments=segments
        ).over_heads()
        packed = mechanism(query, key, value, mask).context
        for start, stop in ((1, 4), (4, 7)):
            inside = [x[1:, :, start:stop] for x in (query, key, value)]
            alone = mechanism(*inside, Mask(causal=is_causal)).context
            np.testing.assert_allclose(packed[1:, :, start:stop], alone, atol=1e-5)


@every
def test_weights_are_those_of_the_context(name):
    mechanism = case(name)
    query, key, value = arrays()
    context, weights = mechanism(query, key, value, ragged())
    if weights is None:
        pytest.skip("forms no weights")
    if mechanism.entry.normalised:
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(weights[1, ..., 3:], 0.0)
    np.testing.assert_allclose(weights @ value, context, atol=1e-5)


@those(lambda line: line.normalised)
def test_a_constant_value_comes_out_as_it_is(name):
    mechanism = case(name)
    query, key, value = arrays()
    for mask in masks_of(mechanism):
        context = mechanism(query, key, np.ones_like(value), mask).context
        # The last real one: early causal queries, and late pads, may see no key.
        last = context[np.arange(B), :, [S - 1, 2]]
        np.testing.assert_allclose(last, 1.0, atol=1e-5)


@every
def test_jit_equals_eager_and_is_deterministic(name):
    mechanism = case(name)
    inputs = arrays()
    compiled = mechanism(*inputs, ragged()).context
    np.testing.assert_array_equal(compiled, mechanism(*inputs, ragged()).context)
    eager = mechanism.eager(*map(jnp.asarray, inputs), ragged()).context
    np.testing.assert_allclose(compiled, eager, atol=1e-5)


dense = jax.jit(dense_attention)
biased_dense = jax.jit(lambda *x: dense_attention(*x, Mask(causal=True), bias=alibi(H)))


@those(lambda line: line.limit is not None)
def test_limit_equals_dense(name):
    line = CATALOG[name]
    mechanism = case(name, **line.limit(S))
    inputs = arrays()
    if line.shares_query_key:
        inputs = (inputs[0], inputs[0], inputs[2])
    for mask in masks_of(mechanism):
        got = mechanism(*inputs, mask).context
        expected = jax.device_get(dense(*inputs, mask).context)
        real = np.broadcast_to(mask.valid[..., None], got.shape)
        np.testing.assert_allclose(got[real], expected[real], atol=1e-5)


@those(lambda line: line.reference is not None)
@pytest.mark.parametrize("num_queries", [S, T])
def test_formula_is_that_of_the_reference(name, num_queries):
    """Sentence by sentence, without its padding, in float64."""
    mechanism = case(name)
    if mechanism.entry.self_only and num_queries != S:
        pytest.skip("as many queries as keys")
    inputs = arrays(num_queries=num_queries)
    extras = {k: np.asarray(x, np.float64) for k, x in mechanism.extras.items()}
    for mask in masks_of(mechanism):
        got = mechanism(*inputs, mask).context
        for row, length in enumerate(mask.valid.sum((1, 2)).tolist()):
            ends = length if num_queries == S else num_queries, length, length
            query, key, value = (
                np.asarray(x[row, :, :end], np.float64)
                for x, end in zip(inputs, ends, strict=True)
            )
            if mask.causal and num_queries != S:
                continue  # padding lies between the last key and the last query
            expected = mechanism.entry.reference(
                *(query, key, value, mask.causal), **mechanism.options, **extras
            )
            np.testing.assert_allclose(got[row, :, : ends[0]], expected, atol=1e-4)


@those(lambda line: line.accepts_bias and line.limit is not None)
def test_bias_is_that_of_dense_attention(name):
    mechanism = case(name, **CATALOG[name].limit(S))
    inputs = arrays()
    attend = jax.jit(lambda *x: mechanism.eager(*x, Mask(causal=True), bias=alibi(H)))
    got = attend(*inputs).context
    expected = biased_dense(*inputs).context
    np.testing.assert_allclose(got, expected, atol=1e-5)


@every
def test_facts_that_are_not_honoured_are_refused(name):
    mechanism = case(name)
    for fact, mask in FACT_MASKS.items():
        if mechanism.honours(fact):
            mechanism(*arrays(), mask)
        else:
            with pytest.raises(ValueError, match=fact):
                mechanism(*arrays(), mask)


@cross
def test_fewer_queries_than_keys_are_the_last_ones(name):
    mechanism = case(name)
    query, key, value = arrays()
    few = mechanism(query[..., -T:, :], key, value, Mask())
    assert few.context.shape == (B, H, T, V)
    if mechanism.honours("causal"):
        mask = Mask(causal=True)
        whole = mechanism(query, key, value, mask).context[..., -T:, :]
        few = mechanism(query[..., -T:, :], key, value, mask).context
        np.testing.assert_allclose(few, whole, atol=1e-5)


@those(lambda line: line.self_only)
def test_unequal_lengths_are_refused(name):
    query, key, value = arrays(num_queries=T)
    with pytest.raises(ValueError, match="as many queries as keys"):
        case(name)(query, key, value, Mask())


@every
def test_shorter_than_anything(name):
    mechanism = case(name, window=5, block=4, stride=3)
    inputs = [x[..., :1, :] for x in arrays()]
    context = mechanism(*inputs, Mask()).context
    assert context.shape == (B, H, 1, V)
    assert np.all(np.isfinite(context))


@every
def test_compiled_memory_grows_as_claimed(name):
    """From 1k to 4k positions, forward and backward, at the default options."""
    from attnjax.benchmarks.attention import temporary_bytes

    small, large = (temporary_bytes(name, length) for length in (1_024, 4_096))
    exponent = np.log(large / small) / np.log(4)
    assert exponent <= CATALOG[name].memory_exponent + 0.15


@every
def test_only_a_mechanism_whose_arrays_end_refuses_more_keys(name):
    line = CATALOG[name]
    short = Sizes(num_heads=H, key_width=K, value_width=V, max_keys=S - 1)
    options = MECHANISMS.fill(name, OPTIONS)
    extras = line.draw(jax.random.key(17), short, options)
    attend = functools.partial(line.bind(options, short), mask=Mask(), **extras)
    if line.max_keys == "limit":
        with pytest.raises(ValueError, match=f"{S - 1} keys, got {S}"):
            jax.eval_shape(attend, *arrays())
    else:
        assert jax.eval_shape(attend, *arrays()).context.shape == (B, H, S, V)


def test_options_of_another_mechanism_are_refused():
    with pytest.raises(ValueError, match=r"takes the options Axial, got Linear\("):
        CATALOG["axial"].bind(mechanism("linear"))
    with pytest.raises(ValueError, match="planes has no effect, because there is none"):
        mechanism("axial", planes=2)
    with pytest.raises(
        ValueError, match="kind sliding_window or local_global; kind lin"
    ):
        mechanism("linear", window=2)


def test_unknown_mechanism_is_refused():
    with pytest.raises(
        ValueError, match=r"no attention mechanism 'dens' \(did you mean 'dense'"
    ):
        entry("dens")
    with pytest.raises(ValueError, match="expected the options of one attention mech"):
        entry(HardChoice())
