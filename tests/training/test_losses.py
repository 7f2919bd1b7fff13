import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnjax.training.losses import cross_entropy

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "torch_cross_entropy.npz"
B, T, C = 2, 5, 13


@pytest.fixture(scope="module")
def batch():
    rngs = jax.random.split(jax.random.key(0))
    logits = 3.0 * jax.random.normal(rngs[0], (B, T, C))
    labels = jax.random.randint(rngs[1], (B, T), 0, C)
    weights = jnp.array([[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0, 0.0]])
    return logits, labels, weights


def by_log_probabilities(logits, labels, weights, smoothing):
    log_probability = jax.nn.log_softmax(logits.astype(jnp.float32))
    target = (1.0 - smoothing) * jax.nn.one_hot(labels, C) + smoothing / C
    return -jnp.sum(target * log_probability * weights[..., None])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_matches_torch(smoothing):
    golden = np.load(GOLDEN)
    weights = (golden["targets"] != golden["pad_id"]).astype(np.float32)
    sums = cross_entropy(
        golden["logits"], golden["targets"], weights, smoothing=smoothing
    )
    np.testing.assert_allclose(
        sums.loss, golden[f"sum_smoothing_{smoothing}"], rtol=1e-5
    )
    np.testing.assert_allclose(
        sums.loss / sums.weight, golden[f"mean_smoothing_{smoothing}"], rtol=1e-5
    )
    np.testing.assert_allclose(sums.nll, golden["sum_smoothing_0.0"], rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_gradient_is_that_of_the_definition(batch, smoothing):
    logits, labels, weights = batch

    def ours(logits, weights):
        return 2.0 * cross_entropy(logits, labels, weights, smoothing=smoothing).loss

    def theirs(logits, weights):
        return 2.0 * by_log_probabilities(logits, labels, weights, smoothing)

    got = jax.grad(ours, argnums=(0, 1))(logits, weights)
    expected = jax.grad(theirs, argnums=(0, 1))(logits, weights)
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-5)


def test_gradient_of_the_likelihood_has_no_smoothing(batch):
    logits, labels, weights = batch

    def nll(logits):
        return cross_entropy(logits, labels, weights, smoothing=0.3).nll

    def expected(logits):
        return by_log_probabilities(logits, labels, weights, 0.0)

    np.testing.assert_allclose(
        jax.grad(nll)(logits), jax.grad(expected)(logits), atol=1e-5
    )


def test_padding_columns_change_nothing(batch):
    logits, labels, weights = batch
    wide = cross_entropy(logits, labels, weights, smoothing=0.1)
    narrow_row = cross_entropy(
        logits[1:, :2], labels[1:, :2], weights[1:, :2], smoothing=0.1
    )
    full_row = cross_entropy(logits[:1], labels[:1], weights[:1], smoothing=0.1)
    for whole, first, second in zip(wide, full_row, narrow_row, strict=True):
        np.testing.assert_allclose(whole, first + second, rtol=1e-5)


def test_all_padding_gives_zero_sums_and_gradient(batch):
    logits, labels, _ = batch
    nothing = jnp.zeros((B, T))
    sums = cross_entropy(logits, labels, nothing, smoothing=0.1)
    assert [float(value) for value in sums] == [0.0, 0.0, 0.0, 0.0]
    gradient = jax.grad(lambda z: cross_entropy(z, labels, nothing).loss)(logits)
    np.testing.assert_array_equal(gradient, 0.0)


def test_counts_correct_labels_and_not_ties():
    logits = jnp.array([[1.0, 3.0, 2.0], [3.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    sums = cross_entropy(logits, jnp.array([1, 2, 0]), jnp.array([2.0, 1.0, 1.0]))
    assert float(sums.correct) == 2.0
    assert float(sums.weight) == 4.0


@pytest.mark.parametrize("label", [-1, C, C + 100])
def test_label_outside_the_classes_cannot_be_missed(batch, label):
    logits, labels, weights = batch
    sums = jax.jit(cross_entropy)(logits, labels.at[0, 1].set(label), weights)
    assert np.isnan(sums.loss)
    assert np.isnan(sums.nll)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_low_precision_logits_are_summed_in_float32(batch, dtype):
    logits, labels, weights = batch
    low = (100.0 * logits).astype(dtype)
    sums = cross_entropy(low, labels, weights, smoothing=0.1)
    exact = cross_entropy(low.astype(jnp.float32), labels, weights, smoothing=0.1)
    np.testing.assert_array_equal(sums.loss, exact.loss)
    gradient = jax.grad(lambda z: cross_entropy(z, labels, weights).loss)(low)
    assert gradient.dtype == dtype
    assert np.all(np.isfinite(gradient.astype(np.float32)))


def test_only_the_gradient_needs_memory_besides_the_logits():
    rows, classes = 128, 1_000
    shapes = (
        jax.ShapeDtypeStruct((rows, classes), jnp.float32),
        jax.ShapeDtypeStruct((rows,), jnp.int32),
        jax.ShapeDtypeStruct((rows,), jnp.float32),
    )

    def loss(logits, labels, weights):
        return cross_entropy(logits, labels, weights, smoothing=0.1).loss

    compiled = jax.jit(jax.value_and_grad(loss)).lower(*shapes).compile()
    size = rows * classes * 4
    assert compiled.memory_analysis().temp_size_in_bytes < size / 8
