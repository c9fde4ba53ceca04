"""`recompute="auto"`: the least recomputation that fits, by the paper's and Korthikanti et al.'s formulas."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layout import rank_elements
from ptdp_core.simulator import PAPER, Software, load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import state_bytes
from ptdp_core.simulator.peak_memory import least_recomputation

MODEL = ModelConfig(layers=4, hidden=64, heads=4, seq=128, vocab=51200)
DENSE = replace(load_cluster("selene"), memory_reserved=0.0, allocator_efficiency=1.0)


def choice(memory, **parallel):
    config = TrainingConfig(MODEL, ParallelConfig(**{"b": 2, "B": 8, "recompute": "auto"} | parallel))
    chosen, _ = least_recomputation(config, CostModel(replace(DENSE, memory_bytes=memory)))
    assert chosen == replace(config, parallel=replace(config.parallel, recompute=chosen.parallel.recompute))
    return chosen.parallel.recompute


def test_the_choice_changes_at_the_byte_that_the_formulas_say():
    """16 bytes a parameter, what l layers keep of one microbatch, and 10 bytes a logit, more than any layer's."""
    s, b, h, a, l, V = 128, 2, 64, 4, 4, 51200  # noqa: E741 - the paper's letters
    (parameters,) = rank_elements(TrainingConfig(MODEL, ParallelConfig()))
    fixed = 16 * parameters + 10 * s * b * V
    none, selective = fixed + l * (s * b * h * 34 + 5 * b * a * s**2), fixed + l * s * b * h * 34
    assert choice(none) == "none"
    assert choice(none - 1) == choice(selective) == "selective"
    assert choice(selective - 1) == choice(0) == "full"
    assert choice(none - 1, d=2, sharded_optimizer=True) == "none"
    sdpa = selective + l * 4 * s * b * a  # a sum of exponentials for each query
    assert choice(sdpa, attention="sdpa") == "none"
    assert choice(sdpa - 1, attention="sdpa") == "full"


def test_whole_layers_are_recomputed_where_their_inputs_are_to_be_distributed():
    assert choice(1e12, t=2, distribute_checkpointed_activations=True) == "full"
    assert choice(1e12, t=2) == "none"


@pytest.mark.parametrize(
    "parallel",
    [
        {"p": 4, "B": 16},
        {"p": 4, "B": 16, "schedule": "gpipe"},
        {"p": 2, "v": 2, "t": 2, "B": 8, "sequence_parallel": True},
        {"p": 4, "B": 16, "schedule": "zb-h1"},
        {"d": 4, "B": 8, "data_parallel": "zero3"},
    ],
    ids=str,
)
def test_a_simulation_is_that_of_the_choice(parallel):
    """The fullest GPU decides, whatever the schedule stashes there."""

    def estimate(recompute, memory):
        config = TrainingConfig(replace(MODEL, vocab=512), ParallelConfig(recompute=recompute, **parallel))
        return simulate(config, replace(DENSE, memory_bytes=memory))

    needs = {recompute: estimate(recompute, 1e12).peak_memory for recompute in ("none", "selective", "full")}
    assert needs["none"] > needs["selective"]
    for bytes_needed in needs.values():
        first = next((name for name, need in needs.items() if need <= bytes_needed), "full")
        chosen = estimate("auto", bytes_needed)
        assert (chosen.config.parallel.recompute, chosen.peak_memory) == (first, needs[first])
        assert chosen.fits
    least = min(needs.values())
    assert estimate("auto", least - 1).config.parallel.recompute == "full"
    assert not estimate("auto", least - 1).fits


def test_states_by_precision():
    fp32_sums = Software(fp32_gradients=True)
    assert [state_bytes(width, PAPER) for width in (2, 4, 8)] == [(2, 2, 12), (4, 4, 8), (8, 8, 16)]
    assert [state_bytes(width, fp32_sums) for width in (2, 4, 8)] == [(2, 4, 12), (4, 4, 8), (8, 8, 16)]
