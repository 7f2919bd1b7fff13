"""Memory and collectives of a small model, against what a mesh must give."""

import dataclasses
import runpy
from pathlib import Path

import pytest

from attnjax.benchmarks.mesh import COLLECTIVES, Traffic, describe, measure, traffic
from attnjax.config import ParallelConfig

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(scope="module")
def reports():
    experiment = runpy.run_path(str(CONFIGS / "quickstart.py"))["experiment"]
    small = dataclasses.replace(
        experiment,
        model=dataclasses.replace(
            experiment.model,
            width=32,
            feed_forward_width=64,
            encoder_layers=1,
            decoder_layers=1,
        ),
        data=dataclasses.replace(experiment.data, tokens_per_batch=1_024),
    )
    return [
        measure(small, ParallelConfig(data=8 // fsdp, fsdp=fsdp)) for fsdp in (1, 8)
    ]


def test_data_parallel_gradients_are_summed_and_nothing_else_is_sent(reports):
    copies, _ = reports
    assert set(copies.traffic) == {"all-reduce"}
    # The table that both languages and the output share is summed three times.
    gradient = copies.memory.gradient_bytes
    assert gradient <= copies.traffic["all-reduce"].num_bytes < 3 * gradient


def test_a_share_of_the_state_is_an_eighth_and_is_gathered(reports):
    copies, shares = (report.memory for report in reports)
    assert shares.parameter_bytes == pytest.approx(copies.parameter_bytes / 8, rel=0.1)
    assert shares.optimizer_bytes == pytest.approx(copies.optimizer_bytes / 8, rel=0.1)
    assert shares.gradient_bytes == shares.parameter_bytes
    gathered = reports[1].traffic["all-gather"].num_bytes
    assert gathered > 0.8 * copies.parameter_bytes


def test_a_row_names_the_mesh_and_counts_what_it_sends(reports):
    cells = [cell.strip() for cell in describe(reports[0]).split("|")[1:-1]]
    assert cells[0] == "8, 1, 1"
    assert len(cells) == 6 + len(COLLECTIVES)
    assert cells[6].startswith(f"{reports[0].traffic['all-reduce'].calls}: ")


def test_calls_and_bytes_are_read_from_the_program():
    text = """
      %a = (f32[2,3]{1,0}, bf16[4]{0}) all-reduce(%x, %y), channel_id=1
      %b = f32[5]{0} all-gather-start(%z), dimensions={0}
      %c = f32[5]{0} add(%all-reduce.1, %all-gather.2)
    """
    assert traffic(text) == {
        "all-reduce": Traffic(1, 2 * 3 * 4 + 4 * 2),
        "all-gather": Traffic(1, 20),
    }
