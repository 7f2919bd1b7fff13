import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.ops.dropout import dropout, random_words

RATE = 0.1
SHAPE = (61, 67, 31)  # 126,697 elements: the standard error of a rate is 0.00084


@pytest.fixture(scope="module")
def words():
    return words_of(jax.random.key(0))


def words_of(rng):
    return np.asarray(jax.jit(random_words, static_argnums=1)(rng, SHAPE))


drop = jax.jit(dropout, static_argnums=1)


def test_kept_share_and_mean_are_as_asked():
    dropped = np.asarray(drop(np.ones(SHAPE, np.float32), RATE, jax.random.key(1)))
    assert abs(float((dropped == 0.0).mean()) - RATE) < 0.003
    np.testing.assert_allclose(dropped.max(), 1.0 / (1.0 - RATE), rtol=1e-6)
    np.testing.assert_allclose(dropped.mean(), 1.0, atol=0.004)


def test_gradient_has_the_same_zeros():
    x = np.random.default_rng(2).normal(size=(5, 7)).astype(np.float32)

    @jax.jit
    def run(x):
        value, pull_back = jax.vjp(lambda x: dropout(x, 0.5, jax.random.key(1)), x)
        return value, *pull_back(jnp.ones_like(value))

    value, gradient = jax.device_get(run(x))
    np.testing.assert_array_equal(gradient, np.where(value == 0.0, 0.0, 2.0))
    assert 0 < int((gradient == 0.0).sum()) < gradient.size


def test_rate_zero_is_the_identity():
    x = jnp.arange(5.0)
    np.testing.assert_array_equal(dropout(x, 0.0, jax.random.key(0)), x)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match="dropout rate"):
        dropout(jnp.ones(3), rate, jax.random.key(0))


def test_low_precision_keeps_its_type_and_mean():
    x = np.ones(SHAPE, jnp.bfloat16)
    dropped = np.asarray(drop(x, RATE, jax.random.key(1)))
    assert dropped.dtype == jnp.bfloat16
    np.testing.assert_allclose(dropped.astype(np.float32).mean(), 1.0, atol=0.006)


def test_words_are_distinct_and_every_bit_is_fair(words):
    assert len(np.unique(words)) > 0.9999 * words.size
    for bit in range(32):
        assert abs(((words >> bit) & 1).mean() - 0.5) < 0.006


def test_neighbours_along_every_axis_are_independent(words):
    for axis, size in enumerate(SHAPE):
        first = words.take(range(size - 1), axis).ravel().astype(float)
        second = words.take(range(1, size), axis).ravel().astype(float)
        assert abs(np.corrcoef(first, second)[0, 1]) < 0.012


def test_words_of_different_keys_are_independent(words):
    rngs = [jax.random.key(1), jax.random.fold_in(jax.random.key(0), 1)]
    for rng in rngs:
        other = words_of(rng)
        correlation = np.corrcoef(words.ravel() / 1.0, other.ravel() / 1.0)[0, 1]
        assert abs(correlation) < 0.012
        shared = np.intersect1d(words[0], other[0])
        assert shared.size < 5  # not shifted copies of one sequence


def test_words_depend_on_both_seeds(monkeypatch):
    def words_of(*seeds):
        monkeypatch.setattr(jax.random, "bits", lambda *_: jnp.uint32(seeds))
        return np.asarray(random_words(jax.random.key(0), SHAPE)).ravel() / 1.0

    words = words_of(0x243F6A88, 0x85A308D3)
    for other in (words_of(0x13198A2E, 0x85A308D3), words_of(0x243F6A88, 0x03707344)):
        assert abs(np.corrcoef(words, other)[0, 1]) < 0.012


def test_every_generator_of_jax_serves():
    words = random_words(jax.random.key(0, impl="rbg"), (5, 7))
    assert words.shape == (5, 7)


def test_no_mask_is_kept_for_the_backward_pass():
    def loss(x):
        return jnp.sum(dropout(jnp.sin(x), RATE, jax.random.key(0)) ** 2)

    def memory(function):
        x = jax.ShapeDtypeStruct((1 << 16,), jnp.float32)
        return jax.jit(function).lower(x).compile().memory_analysis()

    assert memory(jax.grad(loss)).temp_size_in_bytes < 1 << 12
