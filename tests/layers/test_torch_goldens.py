"""Attention and Transformer layers against PyTorch, its weights renamed to ours."""

import functools
import pathlib

import jax
import numpy as np
import pytest

from attnjax.config import TransformerConfig
from attnjax.layers.attention import MultiHeadAttention
from attnjax.layers.transformer import Decoder, Encoder
from attnjax.types import Mask

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def attention():
    golden = dict(np.load(GOLDEN / "torch_mha.npz"))
    width = golden["query"].shape[-1]
    return MultiHeadAttention(width, int(golden["num_heads"])), golden


def test_cross_attention(attention):
    layer, golden = attention
    params = cross_attention(
        golden["in_proj_weight"],
        golden["in_proj_bias"],
        linear(golden["out_proj_weight"], golden["out_proj_bias"]),
    )
    variables = {"params": params}
    mask = Mask(valid=golden["valid_memory"])

    def attend(layer, query, memory):
        return layer.attend_memory(query, layer.prepare(memory), mask, train=False)

    run = jax.jit(functools.partial(layer.apply, method=attend))
    output, weights = run(variables, golden["query"], golden["memory"])
    np.testing.assert_allclose(output, golden["cross_output"], atol=1e-5)
    np.testing.assert_allclose(weights, golden["cross_weights"], atol=1e-5)


def test_causal_self_attention(attention):
    layer, golden = attention
    params = self_attention(
        golden["in_proj_weight"],
        golden["in_proj_bias"],
        linear(golden["out_proj_weight"], golden["out_proj_bias"]),
    )
    run = jax.jit(functools.partial(layer.apply, train=False, method="attend_self"))
    output, weights = run({"params": params}, golden["query"], Mask(causal=True))
    np.testing.assert_allclose(output, golden["self_causal_output"], atol=1e-5)
    np.testing.assert_allclose(weights, golden["self_causal_weights"], atol=1e-5)


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_encoder_and_decoder(norm_position):
    golden = dict(np.load(GOLDEN / f"torch_transformer_{norm_position}ln.npz"))
    config = TransformerConfig(
        width=golden["source"].shape[-1],
        num_heads=int(golden["num_heads"]),
        feed_forward_width=len(golden["param:encoder.layers.0.linear1.bias"]),
        encoder_layers=num_layers(golden, "param:encoder."),
        decoder_layers=num_layers(golden, "param:decoder."),
        norm_position=norm_position,
    )
    mask = Mask(valid=golden["valid_source"])
    encoder = {"params": stack(golden, "param:encoder.", encoder_layer)}
    decoder = {"params": stack(golden, "param:decoder.", decoder_layer)}

    @jax.jit
    def run(source, target):
        states, _ = Encoder(config, final_norm=True).apply(
            encoder, source, mask, train=False
        )
        return Decoder(config, final_norm=True).apply(
            decoder, target, states, Mask(causal=True), mask, train=False
        )

    output, _ = run(golden["source"], golden["target"])
    np.testing.assert_allclose(output, golden["output"], atol=1e-5)


def test_every_weight_of_pytorch_is_used():
    golden = dict(np.load(GOLDEN / "torch_transformer_preln.npz"))
    theirs = sum(array.size for name, array in golden.items() if "param:" in name)
    ours = [
        stack(golden, "param:encoder.", encoder_layer),
        stack(golden, "param:decoder.", decoder_layer),
    ]
    assert sum(leaf.size for leaf in jax.tree.leaves(ours)) == theirs


def num_layers(golden, prefix):
    return sum(
        name.startswith(prefix) and name.endswith("linear1.bias") for name in golden
    )


def stack(golden, prefix, layer):
    layers = {
        f"layer_{index}": layer(golden, f"{prefix}layers.{index}.")
        for index in range(num_layers(golden, prefix))
    }
    return layers | {"norm": norm(golden, f"{prefix}norm.")}


def encoder_layer(golden, prefix):
    return {
        "attention": self_attention(*attention_arrays(golden, f"{prefix}self_attn.")),
        "feed_forward": feed_forward(golden, prefix),
        "attention_residual": {"norm": norm(golden, f"{prefix}norm1.")},
        "feed_forward_residual": {"norm": norm(golden, f"{prefix}norm2.")},
    }


def decoder_layer(golden, prefix):
    own = attention_arrays(golden, f"{prefix}self_attn.")
    cross = attention_arrays(golden, f"{prefix}multihead_attn.")
    return {
        "self_attention": self_attention(*own),
        "cross_attention": cross_attention(*cross),
        "feed_forward": feed_forward(golden, prefix),
        "self_residual": {"norm": norm(golden, f"{prefix}norm1.")},
        "cross_residual": {"norm": norm(golden, f"{prefix}norm2.")},
        "feed_forward_residual": {"norm": norm(golden, f"{prefix}norm3.")},
    }


def attention_arrays(golden, prefix):
    output = linear_of(golden, f"{prefix}out_proj.")
    return golden[f"{prefix}in_proj_weight"], golden[f"{prefix}in_proj_bias"], output


def self_attention(weight, bias, output):
    return {"query_key_value": fused(weight, bias, 3), "output": output}


def cross_attention(weight, bias, output):
    width = weight.shape[1]
    return {
        "query": linear(weight[:width], bias[:width]),
        "key_value": fused(weight[width:], bias[width:], 2),
        "output": output,
    }


def feed_forward(golden, prefix):
    return {
        "hidden": linear_of(golden, f"{prefix}linear1."),
        "output": linear_of(golden, f"{prefix}linear2."),
    }


def norm(golden, prefix):
    return {"scale": golden[f"{prefix}weight"], "bias": golden[f"{prefix}bias"]}


def linear_of(golden, prefix):
    return linear(golden[f"{prefix}weight"], golden[f"{prefix}bias"])


def linear(weight, bias):
    return {"kernel": weight.T, "bias": bias}


def fused(weight, bias, parts):
    kernel = weight.reshape(parts, -1, weight.shape[1]).transpose(2, 0, 1)
    return {"kernel": kernel, "bias": bias.reshape(parts, -1)}
