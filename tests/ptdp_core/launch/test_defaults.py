"""What 'auto' means on a device; no GPU is needed, as its memory is given."""

from dataclasses import replace
from math import ceil
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.launch.command_line import configure, parser
from ptdp_core.launch.defaults import UNFUSED_EFFICIENCY, fitted, smallest_memory
from ptdp_core.launch.local import launch
from ptdp_core.layout import rank_elements
from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.memory import layer_bytes
from tests.ptdp_core.engine.test_kept_bytes import kept_bytes

ALLOCATOR_EFFICIENCY = load_cluster("h100").allocator_efficiency
MODEL = ModelConfig(layers=4, hidden=64, heads=4, seq=128, vocab=51200)
LLAMA = {"kv_heads": 2, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False}
AUTO = ParallelConfig(b=2, B=8, recompute="auto", attention="sdpa")


@pytest.mark.parametrize(("dtype", "width", "states"), [("bf16", 2, 18), ("fp32", 4, 16), ("fp64", 8, 32)])
def test_a_gpu_recomputes_what_its_memory_needs(dtype, width, states):
    """The engine's bytes a parameter, with main gradients in fp32; activations and 5 elements a logit; 10% are free."""
    s, b, h, a, l, V = 128, 2, 64, 4, 4, 51200  # noqa: E741 - the paper's letters
    (parameters,) = rank_elements(TrainingConfig(MODEL, AUTO))
    kept = round(l * s * b * (34 * h + 4 * a) / ALLOCATOR_EFFICIENCY)
    needed = states * parameters + width * (kept + 10 * s * b * V) // 2
    settings = Settings(MODEL, AUTO, EngineSettings(dtype=dtype, kernels="triton", dropout=0.1))
    enough, why = fitted(settings, ceil(needed / 0.9) + 1)
    assert enough == replace(settings, parallel=replace(AUTO, recompute="none"))
    gib = f"{needed / 2**30:.1f}"
    assert why == f"recompute=none: none needs {gib} of {gib} GiB, a GPU's {needed / 0.9 / 2**30:.1f} less 10%"
    less, why = fitted(settings, int(needed / 0.9) - 2)
    assert less.parallel.recompute == "full"
    assert why.startswith(f"recompute=full: none needs {gib}, full needs ")


@pytest.mark.parametrize(
    ("later", "attention", "dropout", "efficiency"),
    [
        ({}, "sdpa", 0.0, ALLOCATOR_EFFICIENCY),  # keeps what it keeps with fused operators
        ({}, "operators", 0.1, UNFUSED_EFFICIENCY),
        (LLAMA, "sdpa", 0.0, UNFUSED_EFFICIENCY),
    ],
    ids=str,
)
def test_a_layer_keeps_no_more_than_predicted(later, attention, dropout, efficiency):
    model = ModelConfig(layers=1, hidden=64, heads=4, seq=64, vocab=256, **later)
    engine = EngineSettings(dtype="bf16", dropout=dropout)
    for recompute in ("none", "selective", "full"):
        parallel = ParallelConfig(b=2, B=2, recompute=recompute, attention=attention)
        one, two = (kept_bytes(replace(model, layers=layers), parallel, engine) for layers in (1, 2))
        predicted = layer_bytes(TrainingConfig(model, parallel)).kept
        assert 0.9 * predicted < two - one <= predicted / (1 if recompute == "full" else efficiency)


def test_a_cpu_and_what_is_said_stay_as_they_are():
    settings = Settings(MODEL, AUTO)
    assert fitted(settings, None) == (replace(settings, parallel=replace(AUTO, recompute="full")), "")
    said = replace(settings, parallel=replace(AUTO, recompute="selective"))
    assert fitted(said, 1) == (said, "")
    assert smallest_memory(torch.device("cpu")) is None


def test_ptdp_train_starts_from_auto():
    arguments = parser().parse_args(["--recipe", "gpt-1b"])
    assert configure(arguments).parallel.recompute == "auto"
    arguments.set = ["recompute=full"]
    assert configure(arguments).parallel.recompute == "full"


def smallest(beat):
    memory = SimpleNamespace(total_memory=(dist.get_rank() + 1) << 36)
    with patch.object(torch.cuda, "get_device_properties", lambda device: memory):
        return smallest_memory(torch.device("cuda"))


def test_all_ranks_go_by_the_smallest_gpu():
    assert launch(smallest, 3, timeout=60) == [1 << 36] * 3
