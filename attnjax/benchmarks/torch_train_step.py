"""The peer of `train_step`: PyTorch models of equal size, timed on request.

Runs as a script under any Python that has torch, and imports nothing of attnjax. Its
argument is a JSON object: ``model`` and the fields of `train_step.Sizes`. It prints one
JSON line about itself, then one line of step times for each number of steps it reads.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from attnjax.terminal import run_command

Sizes = Mapping[str, Any]


class Transformer(nn.Module):
    """`torch.nn.Transformer` between tied embeddings."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width = sizes["width"]
        self.scale = width**0.5
        self.embedding = nn.Embedding(sizes["vocabulary"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.layers = nn.Transformer(
            d_model=width,
            nhead=sizes["num_heads"],
            num_encoder_layers=sizes["num_layers"],
            num_decoder_layers=sizes["num_layers"],
            dim_feedforward=sizes["feed_forward_width"],
            dropout=sizes["dropout"],
            batch_first=True,
        )
        self.dropout = nn.Dropout(sizes["dropout"])
        length = sizes["tokens"]
        self.register_buffer("positions", torch.randn(length, width))
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        self.register_buffer("causal", causal)

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        """Token ids ``[B, T]`` to logits ``[B, T, C]``."""
        padding = source < 0  # nowhere, but a mask all the same, as in attnjax
        states = self.layers(
            self._embed(source),
            self._embed(inputs),
            tgt_mask=self.causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return functional.linear(states, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.scale + self.positions)


class Bahdanau(nn.Module):
    """GRU encoder and decoder with additive attention, as a loop over positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, vocabulary = sizes["width"], sizes["vocabulary"]
        self.source_embedding = nn.Embedding(vocabulary, width)
        self.target_embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.initial = nn.Linear(width, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(2 * width, width)
        self.score = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(3 * width, width)
        self.readout = nn.Linear(4 * width, 2 * width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.dropout = nn.Dropout(sizes["dropout"])

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        """Token ids ``[B, T]`` to logits ``[B, T, C]``."""
        memory, final = self.encoder(self.dropout(self.source_embedding(source)))
        hidden = torch.tanh(self.initial(final[1]))  # of the backward direction
        keys = self.key(memory)
        embedded = self.dropout(self.target_embedding(inputs))
        rows = []
        for token in embedded.unbind(1):
            scores = self.score(torch.tanh(self.query(hidden)[:, None] + keys))
            context = (torch.softmax(scores, dim=1) * memory).sum(1)
            hidden = self.cell(torch.cat([token, context], -1), hidden)
            rows.append(torch.cat([hidden, context, token], -1))
        pieces = self.readout(torch.stack(rows, 1)).unflatten(-1, (-1, 2))
        return self.output(self.dropout(pieces.amax(-1)))


def main() -> None:
    """Answers requests for step times until the input ends."""
    sizes = json.loads(sys.argv[1])
    step = make_step(sizes)
    about = {"version": torch.__version__, "threads": torch.get_num_threads()}
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        print(json.dumps([_seconds(step) for _ in range(int(line))]), flush=True)


def make_step(sizes: Sizes) -> Callable[[], None]:
    """Builds the model, the batch and Adam; returns one update."""
    torch.manual_seed(0)
    families: dict[str, Callable[[Sizes], nn.Module]]
    families = {"transformer": Transformer, "bahdanau": Bahdanau}
    model = families[sizes["model"]](sizes)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.98), eps=1e-9)
    shape = (3, sizes["batch"], sizes["tokens"])
    source, inputs, labels = torch.randint(4, sizes["vocabulary"], shape)

    def step() -> None:
        optimizer.zero_grad()
        logits = model(source, inputs)
        loss = functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
        )
        loss.backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(run_command(main))
