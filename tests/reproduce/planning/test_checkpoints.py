"""Sizes of checkpoints by format and layout: what people were told, and that all shares together are the whole."""

import pytest

from ptdp_core.formulas import parameters
from reproduce.planning.checkpoints import document
from reproduce.planning.models import named
from reproduce.planning.what_if import configuration


def test_six_minutes_for_a_checkpoint_of_8_billion_are_its_96_gb_at_a_quarter_of_a_gb_a_second(
    points_file, said, as_json
):
    file = points_file({"model": "llama-3-8b", "d": 8, "B": 8, "data_parallel": "zero3"}, {"b": 0})
    command = ("simulate", file, "--cluster", "h100", "--checkpoint-rate", "0.27")
    first, invalid = as_json(*command, code=4)["points"]
    assert (
        first["checkpoint"]["bytes"]["states"]
        == 12 * parameters(named("llama-3-8b"))
        == pytest.approx(96.4e9, rel=1e-3)
    )
    assert first["checkpoint"]["seconds"]["states"] == pytest.approx(357, abs=1)
    assert first["checkpoint"]["bytes"]["states_and_weights"] == 14 * parameters(named("llama-3-8b"))
    assert "checkpoint" not in invalid
    printed = " ".join(said(*command, code=4).split())
    assert "checkpoint of 96.4 GB, 357 s at 0.27 GB/s: 12 bytes a parameter" in printed
    assert "saved in the background they take 96.4 GB of a node's memory" in printed


@pytest.mark.parametrize(
    ("layout", "writers"),
    [
        ({"model": "llama-3-8b", "t": 8, "d": 2, "B": 2}, 8),
        ({"model": "llama-3-8b", "t": 8, "d": 2, "B": 2, "sharded_optimizer": True}, 16),
        ({"model": "llama-3-8b", "t": 2, "c": 2, "d": 2, "B": 2, "sharded_optimizer": True, "attention": "sdpa"}, 8),
        ({"model": "qwen3-30b-a3b", "d": 16, "e": 8, "B": 16, "sharded_optimizer": True}, 16),
        ({"model": "qwen3-30b-a3b", "d": 16, "e": 8, "B": 16}, 8),
    ],
)
def test_the_shares_of_those_that_write_are_the_whole_checkpoint(layout, writers):
    found = document(*configuration(layout, "h100"), rate=1e9)
    assert found["gpus_that_write"] == writers
    dense = 1.0 if "e" not in layout or "sharded_optimizer" in layout else 1.5  # one of them writes all but experts
    whole = found["bytes"]["states"]
    assert whole <= writers * found["largest_share"] * 1.001 <= dense * whole * 1.01
    assert found["host_bytes"] == found["largest_share"] * 8


@pytest.mark.parametrize(
    ("optimizer", "states", "both"),
    [("adam", 12, 14), ("adam_bf16", 8, 8), ("adam_fp8", 6, 6), ("adam_no_master", 6, 6), ("muon", 8, 10)],
)
def test_other_optimizers_and_adapters_save_what_they_keep(optimizer, states, both):
    point = {"model": "llama-3-8b", "d": 8, "B": 8, "sharded_optimizer": True, "optimizer_states": optimizer}
    found, total = document(*configuration(point, "h100"), rate=1e9), parameters(named("llama-3-8b"))
    assert (found["bytes"]["states"], found["bytes"]["states_and_weights"]) == (states * total, both * total)
    if optimizer == "muon":  # of whole matrices, which adapters are not
        return
    adapters = document(*configuration(point | {"lora_rank": 16}, "h100"), rate=1e9)
    assert 0 < adapters["bytes"]["states"] < 0.01 * found["bytes"]["states"]
    assert adapters["largest_share"] == pytest.approx(adapters["bytes"]["states"] / 8, rel=0.01)
