"""A problem small enough for the trainer's tests: linear regression, K 3 to V 2."""

import jax
import jax.numpy as jnp
import numpy as np

from attnjax.types import Ratio

NUM_INPUTS, NUM_OUTPUTS = 3, 2


class LinearTask:
    """Squared error per row, a running count as model state, noise as dropout."""

    unit = "real rows"
    score = "closeness"
    measure = "closeness to 1"

    def __init__(self, noise=0.0):
        self.noise = noise
        self.num_traces = 0
        self.evaluated = []

    def init(self, rng):
        kernel = jax.random.normal(rng, (NUM_INPUTS, NUM_OUTPUTS))
        params = {"kernel": kernel, "bias": jnp.zeros(NUM_OUTPUTS)}
        return {"params": params, "statistics": {"rows": jnp.zeros(())}}

    def loss(self, variables, batch, rng, *, train):
        self.num_traces += 1
        params, rows = variables["params"], batch["weights"].sum()
        inputs_bk = batch["inputs"]
        if self.noise and train:
            inputs_bk += self.noise * jax.random.normal(rng, inputs_bk.shape)
        outputs_bv = inputs_bk @ params["kernel"] + params["bias"][None]
        errors_b = jnp.square(outputs_bv - batch["outputs"]).sum(-1)
        metrics = {
            "loss": Ratio((errors_b * batch["weights"]).sum(), rows),
            "noise": Ratio(jax.random.normal(rng), jnp.ones(())),
        }
        return metrics, {"statistics": {"rows": variables["statistics"]["rows"] + rows}}

    def evaluate(self, variables):
        self.evaluated.append(int(variables["statistics"]["rows"]))
        distance = np.abs(np.asarray(variables["params"]["kernel"]) - 1.0).max()
        return {"closeness": -float(distance), "rows": float(self.evaluated[-1])}


def make_batch(num_rows, seed):
    """Rows of different weight, some of them padding."""
    generator = np.random.default_rng(seed)
    inputs_bk = generator.normal(size=(num_rows, NUM_INPUTS)).astype(np.float32)
    return {
        "inputs": inputs_bk,
        "outputs": inputs_bk @ np.ones((NUM_INPUTS, NUM_OUTPUTS), np.float32),
        "weights": (generator.random(num_rows) > 0.3).astype(np.float32),
    }


class FakeBatches:
    """An endless iterator; batch n follows from n alone. Remembers what it gave."""

    def __init__(self, rows=(8, 16), before_batch=None):
        self.rows = rows
        self.position = 0
        self.given = []
        self.before_batch = before_batch

    def __next__(self):
        if self.before_batch is not None:
            self.before_batch(self.position)
        self.given.append(self.position)
        self.position += 1
        rows = self.rows[self.given[-1] % len(self.rows)]
        return make_batch(rows, seed=self.given[-1])

    def get_state(self):
        return {"position": self.position}

    def set_state(self, state):
        self.position = state["position"]
