"""ZeRO-3 as PyTorch's FSDP runs it, beside the one of Section 5.2."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import parameters
from ptdp_core.simulator import simulate
from ptdp_core.simulator.cluster import load_cluster
from ptdp_core.simulator.software import Software

H100 = load_cluster("h100")
FSDP = Software(fp32_gradients=True, fused_cross_entropy=True, fsdp=True)


def config(d: int = 8, m: int = 1, **parallel) -> TrainingConfig:
    sizes = {"p": 1, "t": 1, "b": 2, "attention": "sdpa", "recompute": "none"} | parallel
    return TrainingConfig(ModelConfig(40, 5120, 40), ParallelConfig(d=d, B=2 * d * m, data_parallel="zero3", **sizes))


def communication(config: TrainingConfig, software: Software) -> float:
    return simulate(config, H100, software).phase_times["data_parallel"]


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_microbatch_gathers_twice_and_reduces_once_in_fp32(m: int, recompute: str) -> None:
    run = config(m=m, recompute=recompute)
    sent = simulate(run, H100, FSDP).traffic["data"]
    assert sent == round(m * (2 * 2 + 4) * parameters(run.model) * 7 / 8)


def test_gathering_late_costs_what_prefetching_hides() -> None:
    run, late = config(), replace(FSDP, backward_post=True)
    assert communication(run, late) > 1.5 * communication(run, FSDP)
    bytes_in_turn = (2 + 4) * parameters(run.model) * 7 / 8
    assert communication(run, late) > bytes_in_turn / H100.nvlink_bandwidth_8


def test_communication_grows_with_microbatches_and_with_nodes() -> None:
    late = replace(FSDP, backward_post=True)
    assert communication(config(m=4), late) == pytest.approx(4 * communication(config(), late))
    times = [communication(config(d=d), late) for d in (8, 64, 512)]
    assert times == sorted(times)


def test_a_fused_loss_keeps_six_bytes_a_logit_less() -> None:
    run = TrainingConfig(ModelConfig(2, 1024, 16, vocab=512000), config().parallel)
    plain, fused = (
        simulate(run, H100, replace(FSDP, fused_cross_entropy=on)).memory_bytes["working_activations"]
        for on in (False, True)
    )
    assert plain - fused == 6 * 2 * run.model.seq * run.padded_vocab
