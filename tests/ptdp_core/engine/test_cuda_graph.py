"""Microbatches as CUDA graphs: losses and parameters are those of the passes one by one."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
import torch

from benchmarks.harness.training import build
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine import cuda_graph
from ptdp_core.engine.cuda_graph import GraphedExecutor
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.errors import ConfigurationError

GPT = ModelConfig(2, 64, 4, 32, 256)
LLAMA = replace(GPT, activation="swiglu", norm="rmsnorm", positions="rotary", bias=False, kv_heads=2, ffn_hidden=128)
EXPERTS = replace(LLAMA, experts=4, experts_per_token=2, auxiliary_loss=0.01)
STEPS = 4
CASES = {
    "gpt": (GPT, {}, {"fused_accumulation": True}),
    "gpt of one microbatch": (GPT, {"B": 2}, {}),
    "llama": (LLAMA, {}, {"fused_accumulation": True}),
    "recomputed": (GPT, {"recompute": "full", "attention": "operators"}, {}),
    "experts": (EXPERTS, {}, {"fused_accumulation": True}),
    "fp8": (GPT, {"fp8_recipe": "tensorwise"}, {}),
}


def trained(case, device, graphs):
    """The losses of a few steps and the parameters after them."""
    model, parallel, settings = CASES[case]
    layout = ParallelConfig(**{"b": 2, "B": 6, "recompute": "none", "attention": "sdpa", **parallel})
    engine = EngineSettings(dtype="bf16", device=device, **settings)
    trainer, batch, _ = build(model, layout, device, engine, "auto" if device == "cuda" else "reference")
    graphs(trainer)
    return [trainer.step(batch).loss for _ in range(STEPS)], trainer.buffer.param_data.clone()


def use_graphs(trainer):
    """What `cuda_graph=true` does."""
    trainer._run = GraphedExecutor(trainer.executor, trainer.groups).run


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_graphs_train_as_the_passes_one_by_one_do(case):
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("no GPU with grouped products and FP8")
    losses, parameters = trained(case, "cuda", lambda trainer: None)
    graphed, others = trained(case, "cuda", use_graphs)
    assert graphed == pytest.approx(losses, rel=2e-3)
    torch.testing.assert_close(others, parameters, rtol=0.02, atol=2e-3)


@dataclass
class Replayed:
    """In a graph's place: a replay runs again what was recorded."""

    again: list[Callable[[], None]] = field(default_factory=list)

    def pool(self):
        return None

    def replay(self):
        self.again[0]()


def without_a_gpu(monkeypatch):
    """Let recordings be functions; the list says of each whether it was that of the first microbatch."""
    recordings = []

    class Stream:
        def __init__(self, device=None):
            pass

        def wait_stream(self, other):
            pass

    def recorded(self, feed):
        loss, first, scale = torch.zeros(()), not self._graphs or True not in self._graphs, self._scale
        recordings.append(first)
        graph = Replayed([lambda: loss.copy_(self.executor.microbatch(feed, scale)) and None])
        return graph, loss

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(cuda_graph.GraphedExecutor, "_recorded", recorded)
    return recordings


@pytest.mark.parametrize("case", CASES)
def test_each_microbatch_is_replayed_with_its_own_tokens(case, monkeypatch):
    recordings = without_a_gpu(monkeypatch)
    losses, parameters = trained(case, "cpu", lambda trainer: None)
    graphed, others = trained(case, "cpu", use_graphs)
    assert graphed == losses
    assert torch.equal(others, parameters)
    assert recordings == ([True] if "one microbatch" in case else [True, False])


def test_another_loss_scale_is_recorded_anew(monkeypatch):
    recordings = without_a_gpu(monkeypatch)
    trainer, batch, _ = build(GPT, ParallelConfig(b=2, B=6, recompute="none", attention="sdpa"), "cpu")
    graphs = GraphedExecutor(trainer.executor, trainer.groups)
    norms = []
    for scale in (1.0, 1.0, 1.0, 8.0):
        trainer.buffer.zero()
        graphs.run(batch, scale)
        norms.append(float(trainer.buffer.grad_data.norm() / scale))
    assert norms == pytest.approx([norms[0]] * 4, rel=1e-5)
    assert recordings == [True, False, True, False]


def test_on_a_cpu_graphs_are_refused_in_a_line():
    with pytest.raises(ConfigurationError, match="cuda_graph=True with device='cpu'; needs a GPU; try"):
        build(GPT, ParallelConfig(b=2, B=4, recompute="none"), "cpu", EngineSettings(cuda_graph=True))
