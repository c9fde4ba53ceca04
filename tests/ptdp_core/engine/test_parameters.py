"""Initial weights: equal to the bit in every layout, and drawn only where they are needed."""

from threading import Barrier

import pytest
import torch

from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine import parameters
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.model import Build, build_chunks
from ptdp_core.engine.parameters import BLOCK, ParameterStore
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.engine.settings import Settings
from ptdp_core.layout import Parameter

CPU = torch.device("cpu")
MODEL = ModelConfig(layers=4, hidden=24, heads=6, seq=20, vocab=300)


def local_parameters(pp, tp, dtype=torch.float32, **layout):
    """All parameters of a rank."""
    parallel = ParallelConfig(B=8, **layout)
    axis = Axis("tp", tp, parallel.t)
    store = ParameterStore(1234, axis, CPU, dtype)
    build = Build(Settings(MODEL, parallel), store, select("reference"), RNGTracker(1, CPU))
    build_chunks(build, parallel.placement, pp)
    return store.parameters


@pytest.mark.parametrize(
    "layout", [{"p": 4}, {"p": 2, "v": 2}, {"t": 2}, {"t": 3}, {"p": 2, "t": 6}, {"d": 2}], ids=str
)
def test_initial_weights_are_those_of_one_rank(layout):
    """Slices for t=3 and 6 cut blocks in two; the vocabulary's last slices are padded."""
    whole = {local.shard.parameter.name: local.tensor for local in local_parameters(0, 0)}
    for pp in range(layout.get("p", 1)):
        for tp in range(layout.get("t", 1)):
            for tensor, shard, _ in local_parameters(pp, tp, **layout):
                split, kept = shard.parameter.split or 0, shard.stop - shard.start
                expected = whole[shard.parameter.name].narrow(split, shard.start, kept)
                assert torch.equal(tensor.narrow(split, 0, kept), expected)
                assert not tensor.narrow(split, kept, shard.padding).any()


def test_precisions_start_from_the_same_values():
    for wide, narrow in zip(local_parameters(0, 0), local_parameters(0, 0, torch.bfloat16), strict=True):
        assert torch.equal(wide.tensor.bfloat16(), narrow.tensor)


def test_weights_are_normal_and_blocks_differ():
    (word,) = (local.tensor for local in local_parameters(0, 0) if local.shard.parameter.tied)
    values = word[: MODEL.vocab].detach()
    assert values.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(values.mean().item()) < 1e-3
    assert len({row.tobytes() for row in values.numpy()}) == MODEL.vocab


def test_threads_draw_a_large_parameter_and_the_values_are_those_of_one(monkeypatch):
    """Of 32 blocks two are drawn at the same time, each of which waits for the other."""

    def drawn(threads):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        store = ParameterStore(1, Axis("tp"), CPU, torch.bfloat16)
        store.begin_chunk(0, [Parameter("weight", (512, 512), 0)])
        return store("weight", std=1.0).detach()

    alone, generator, both = drawn(1), parameters.named_generator, Barrier(2)

    def waiting(seed, name):
        both.wait(timeout=20)
        return generator(seed, name)

    monkeypatch.setattr(parameters, "named_generator", waiting)
    assert torch.equal(drawn(2), alone)


@pytest.mark.parametrize("split", [0, 1])
def test_a_rank_draws_only_the_blocks_of_its_slice(split, monkeypatch):
    drawn = []
    generator = parameters.named_generator
    monkeypatch.setattr(parameters, "named_generator", lambda seed, name: drawn.append(name) or generator(seed, name))
    shape = (8 * BLOCK, 3) if split == 0 else (3, 8 * BLOCK)
    store = ParameterStore(1, Axis("tp", 3, 4), CPU, torch.float32)
    store.begin_chunk(0, [Parameter("w", shape, split)])
    store("w", std=1.0)
    assert drawn == ["w/6", "w/7"]
