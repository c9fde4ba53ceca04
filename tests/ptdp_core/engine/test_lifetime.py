"""A trainer that is gone leaves no memory behind: its weights, gradients and AdamW's tensors go with it."""

import pytest

from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs

OVERLAPPED = {"data_parallel": "torch", "sharded_optimizer": True, "overlapped_gather": True}
EXPERTS = {"experts": 4, "experts_per_token": 2}
ALONE = {
    "plain": {},
    "bf16": {"dtype": "bf16"},
    "gradients added in GEMMs": {"dtype": "bf16", "fused_accumulation": True},
    "overlapped gradients": {"data_parallel": "torch", "dtype": "bf16"},
    "overlapped gather": OVERLAPPED,
    "ZeRO-3": {"data_parallel": "zero3"},
    "split backward passes": {"schedule": "zb-h1", "dtype": "bf16"},
    "recomputed": {"recompute": "full", "dropout": 0.1},
    "attention recomputed": {"recompute": "selective"},
    "experts": EXPERTS | {"capacity_factor": 1.0},
    "FP8": {"fp8_recipe": "mxfp8", "dtype": "bf16", "hidden": 32, "seq": 32},
    "Llama": {"norm": "rmsnorm", "activation": "swiglu", "positions": "rotary", "bias": False, "kv_heads": 2},
}
FOUR = {
    "pipeline and tensors": {"p": 2, "t": 2, "sequence_parallel": True, "dtype": "bf16", "overlapped_all_reduce": True},
    "a V of stages": {"p": 2, "v": 2, "d": 2, "schedule": "zb-v", "layers": 8},
    "fused passes of experts": {
        "p": 2,
        "v": 2,
        "d": 2,
        "e": 2,
        "schedule": "dualpipev-overlap",
        "B": 8,
        "layers": 8,
        **EXPERTS,
    },
    "overlapped exchange": {"p": 2, "d": 2, "exchange": "overlapped", **OVERLAPPED},
    "ring": {"c": 2, "d": 2, "context_exchange": "ring", "attention": "sdpa"},
    "gathered keys": {"c": 2, "t": 2, "context_exchange": "all_gather"},
    "all-to-all": {"c": 2, "d": 2, "context_exchange": "all_to_all"},
    "experts": {"d": 4, "e": 4, **EXPERTS},
    "ZeRO-3": {"d": 4, "data_parallel": "zero3"},
}


@pytest.mark.parametrize(("ranks", "layouts"), [(1, ALONE), (4, FOUR)], ids=["alone", "four"])
def test_a_trainer_that_is_gone_holds_no_memory(ranks, layouts):
    cases = [{"B": 4} | case for case in layouts.values()]
    for held in launch(jobs.left_alive, ranks, (cases,), timeout=120, process_group=ranks > 1):
        assert dict(zip(layouts, held, strict=True)) == {name: [] for name in layouts}
