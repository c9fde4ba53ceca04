"""The bytes that the engine keeps of a layer for its backward pass, against those of the layer's table, exactly.

Those of one rank, and of one of two whose messages go nowhere, as only sizes matter here.

The table counts Megatron-LM's fused operators. Where the engine's own operators keep other tensors, on a CPU, these are
named here one by one, so that nothing that either of them keeps goes unnoticed.
"""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.simulator.memory import layer_bytes
from tests.ptdp_core.blocks import LATER
from tests.ptdp_core.engine import jobs, serial_model

S, B, H, A = 64, 2, 64, 4
TOKENS, N, SCORES = S * B, S * B * H, B * A * S * S
GPT = ModelConfig(layers=1, hidden=H, heads=A, seq=S, vocab=256)
LLAMA = replace(GPT, kv_heads=2, ffn_hidden=96, **LATER)
WIDTH, CHOSEN, EXPERTS = 48, 2, 4  # of an expert, of a token's experts, of all
MIXTURE = replace(LLAMA, experts=EXPERTS, experts_per_token=CHOSEN, expert_ffn_hidden=WIDTH)
# What the engine keeps more of a layer of a GPT: mean and deviation of both norms in 16 bits.
STATISTICS = 2 * 2 * 2 * TOKENS
# Of dropout between layers the table has a mask of a byte an element, and the reference operators factors in bf16.
MASKS, FACTORS = 2 * N, 2 * 2 * N
# Of the scores the reference operators keep the softmax in fp32 in place of 16 bits, the causal mask once for all
# heads, and of their dropout factors in bf16 in place of a mask of a byte.
SOFTMAX, CAUSAL, DROPPED = (4 - 2) * SCORES, S * S, (2 - 1) * SCORES
# PyTorch's RMSNorm on a CPU: input and result in fp32 and a deviation, beside what the linear behind it reads.
RMS_NORMS = 2 * ((4 + 4 + 2 - 2 - 2) * N + 4 * TOKENS)
# Queries and keys both before and after they are turned; silu(gate), which is computed apart.
TURNED, SILU = 2 * TOKENS * (A + 2) * H // A, 2 * TOKENS * 96
# The router's input in fp32 in place of 16 bits, its weight in fp32, numbers of the chosen experts and of their rows
# (8 bytes each), their weights before and after they are divided by their sum, and in 16 bits.
ROUTER = (4 - 2) * N + 4 * EXPERTS * H + 8 * 2 * TOKENS * CHOSEN + 4 * TOKENS * (1 + CHOSEN) + 2 * TOKENS * CHOSEN
# Each chosen expert's result, which the engine weights at the end, and Megatron-Core before the last linear.
RESULTS, EXPERTS_SILU = 2 * CHOSEN * N, 2 * TOKENS * CHOSEN * WIDTH


def kept_bytes(model, parallel, engine):
    """The bytes that autograd keeps of a microbatch, those of parameters apart."""
    groups = Groups.create(parallel) if parallel.n > 1 else Groups.alone()
    trainer = Trainer(Settings(model, parallel, engine), groups, select("reference"))
    tokens = torch.zeros(parallel.b, model.seq, dtype=torch.long)
    return jobs.kept_bytes(trainer.chunks[0], tokens, tokens)[0]


@pytest.mark.parametrize(
    ("model", "attention", "dropout", "recompute", "of_its_own"),
    [
        (GPT, "sdpa", 0.0, "none", STATISTICS - MASKS),
        (GPT, "sdpa", 0.1, "full", 0),
        (GPT, "operators", 0.1, "none", STATISTICS - MASKS + FACTORS + SOFTMAX + CAUSAL + DROPPED),
        (GPT, "operators", 0.1, "selective", STATISTICS - MASKS + FACTORS),
        (LLAMA, "sdpa", 0.0, "none", RMS_NORMS + TURNED + SILU),
        (LLAMA, "sdpa", 0.0, "full", 0),
        (GPT, "sdpa", 0.0, "mlp", STATISTICS - MASKS),
        (LLAMA, "sdpa", 0.0, "mlp", RMS_NORMS + TURNED),
    ],
)
def test_a_layer_keeps_what_its_table_says(model, attention, dropout, recompute, of_its_own):
    how = {"recompute": "selective", "recompute_modules": "mlp"} if recompute == "mlp" else {"recompute": recompute}
    parallel = ParallelConfig(b=B, B=B, attention=attention, **how)
    engine = EngineSettings(dtype="bf16", dropout=dropout)
    one, two = (kept_bytes(replace(model, layers=layers), parallel, engine) for layers in (1, 2))
    assert two - one == layer_bytes(TrainingConfig(model, parallel)).kept + of_its_own


@pytest.mark.parametrize("name", serial_model.FURTHER)
def test_a_further_field_keeps_as_much_more_as_its_table_says(name):
    parallel = ParallelConfig(b=B, B=B, attention="sdpa", recompute="none")
    measured, counted = [], []
    value, of_a_token = serial_model.FURTHER[name]
    for model in (LLAMA, replace(LLAMA, **{name: value})):
        one, two = (
            kept_bytes(replace(model, layers=layers), parallel, EngineSettings(dtype="bf16")) for layers in (1, 2)
        )
        measured.append(two - one)
        counted.append(layer_bytes(TrainingConfig(model, parallel)).kept)
    assert measured[1] - measured[0] == counted[1] - counted[0] + of_a_token * TOKENS


@pytest.fixture
def one_of_two_ranks():
    """A process group of two ranks of which only this one is there: its collectives send nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_of_two_ranks")
@pytest.mark.parametrize(
    ("model", "layout", "of_its_own"),
    [
        (GPT, {"t": 2}, STATISTICS - MASKS),
        (GPT, {"t": 2, "sequence_parallel": True}, (STATISTICS - MASKS) // 2),
        (LLAMA, {"t": 2}, RMS_NORMS + (TURNED + SILU) // 2),
        (LLAMA, {"t": 2, "sequence_parallel": True}, (RMS_NORMS + TURNED + SILU) // 2),
        (MIXTURE, {"d": 2}, RMS_NORMS + TURNED + ROUTER + RESULTS + EXPERTS_SILU),
        (MIXTURE, {"t": 2}, RMS_NORMS + ROUTER + RESULTS + (TURNED + EXPERTS_SILU) // 2),
        (MIXTURE, {"d": 2, "recompute": "selective", "recompute_modules": "moe"}, RMS_NORMS + TURNED),
    ],
)
def test_a_rank_of_two_keeps_what_its_table_says(model, layout, of_its_own):
    chosen = {"b": B, "B": 2 * B, "attention": "sdpa", "recompute": "none"} | layout
    config = TrainingConfig(model, ParallelConfig(**chosen))
    one, two = (
        kept_bytes(replace(model, layers=layers), config.parallel, EngineSettings(dtype="bf16")) for layers in (1, 2)
    )
    assert two - one == layer_bytes(config).kept + of_its_own


def test_in_fp8_a_layer_keeps_what_is_cast_in_place_of_16_bits(monkeypatch):
    """Inputs of linears: two norms' and the MLP's second one's alone, the core's beside it; and a scale each."""
    monkeypatch.setattr("ptdp_core.engine.trainer.is_native", lambda recipe, device: True)
    parallel = ParallelConfig(b=B, B=B, attention="sdpa", recompute="none", fp8_recipe="tensorwise")
    engine = EngineSettings(dtype="bf16", dropout=0.0)
    one, two = (kept_bytes(replace(GPT, layers=layers), parallel, engine) for layers in (1, 2))
    table = layer_bytes(TrainingConfig(GPT, parallel)).kept
    assert two - one == table + STATISTICS - MASKS + 4 * 4
