"""Mixtures of experts: the serial model's loss, gradients and parameters at every layout; counts; checkpoints."""

from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ptdp_core.engine.optimizer import learning_rate
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs, serial, serial_later
from tests.ptdp_core.engine.test_parity import TOLERANCE

MIXTURE = {
    "hidden": 16, "heads": 4, "kv_heads": 4, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary",
    "tied_embeddings": False, "bias": False, "experts": 4, "experts_per_token": 2, "expert_ffn_hidden": 8,
}  # fmt: skip
EVERYTHING = MIXTURE | {"layers": 4, "shared_expert_ffn_hidden": 12, "dense_layers": 1, "auxiliary_loss": 0.1}


def serial_run(case: dict[str, Any]) -> dict[str, Any]:
    """The serial model's run with the case's microbatches, to which balance and capacity refer."""
    s = jobs.settings_of(case)
    rates = [learning_rate(step, s.optimizer) for step in range(jobs.STEPS)]
    loss = partial(serial_later.loss, capacity_factor=s.parallel.capacity_factor)
    drop, data = serial.Dropout(0.0, []), jobs.batches(s.parallel.B)
    decay, clip = s.optimizer.weight_decay, s.optimizer.clip
    return serial.train(s.model, data, s.parallel.b, jobs.SEED, drop, rates, decay, clip, serial_later.initial, loss)


def check(cases: list[dict[str, Any]], folder: Path) -> None:
    by_ranks = defaultdict(list)
    for number, case in enumerate(cases):
        path = str(folder / f"{number}.pt")
        torch.save(serial_run(case), path)
        by_ranks[case.get("p", 1) * case.get("t", 1) * case.get("d", 1)].append((case, path))
    wrong = []
    for ranks, work in sorted(by_ranks.items()):
        results = launch(jobs.compare_all, ranks, (work,), timeout=120, process_group=ranks > 1)
        for i, (case, _) in enumerate(work):
            wrong += [f"{jobs.merged(case)}: {r[i]}" for r in results if not max(r[i].values()) <= TOLERANCE]
    assert not wrong, "\n".join(wrong)


def test_one_rank(tmp_path: Path) -> None:
    ways: list[dict[str, Any]] = [
        {"recompute": "none"},
        {"recompute": "full"},
        {"router": "softmax_before"},
        {"router": "sigmoid"},
        {"experts_per_token": 1, "router": "softmax_before"},
        {"capacity_factor": 0.7, "recompute": "full", "b": 2},
        {"schedule": "gpipe"},
    ]
    check([EVERYTHING | {"B": 4} | way for way in ways], tmp_path)


LAYOUTS: list[dict[str, Any]] = [
    {"d": 2, "e": 2},
    {"d": 2, "e": 1},
    {"d": 2, "e": 2, "data_parallel": "torch", "bucket_mib": 0.002, "sharded_optimizer": True, "overlapped_gather": True},
    {"t": 2, "recompute": "none"},
    {"t": 2, "sequence_parallel": True, "overlapped_all_reduce": True},
    {"p": 2, "recompute": "none", "schedule": "zb-h1"},
    {"p": 2, "t": 1, "d": 2, "e": 2, "exchange": "overlapped", "sharded_optimizer": True},
    {"t": 2, "d": 2, "e": 2, "sequence_parallel": True, "sharded_optimizer": True},
    {"t": 2, "d": 2, "e": 2, "data_parallel": "torch", "fused_accumulation": True, "bucket_mib": 0.002},
    {"d": 4, "e": 4, "capacity_factor": 0.5, "b": 2, "B": 8},
    {"d": 4, "e": 2, "sharded_optimizer": True, "recompute": "selective"},
    {"d": 4, "e": 2, "capacity_factor": 1.0, "data_parallel": "torch", "router": "sigmoid"},
    {"p": 2, "t": 2, "v": 2, "scatter_gather": True, "router": "softmax_before"},
    {"p": 2, "d": 2, "e": 2, "schedule": "zb-h1", "data_parallel": "torch", "fused_accumulation": True},
]  # fmt: skip


def test_layouts(tmp_path: Path) -> None:
    check([EVERYTHING | {"B": 4} | layout for layout in LAYOUTS], tmp_path)
