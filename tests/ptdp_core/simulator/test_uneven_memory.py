"""The memory of ranks whose model chunks have different numbers of layers, against counting pass by pass."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import definition, names
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import deferred_bytes, layer_bytes, stash_bytes
from ptdp_core.simulator.peak_memory import peak_memory, rank_memories, rank_stash_fronts
from tests.ptdp_core.blocks import most_held

SELENE = load_cluster("selene")
FREED = replace(SELENE.software, freed_outputs=True)  # what is stashed is then all that a moment adds
CHUNKED = [name for name in names() if definition(name).chunks[1] != 1]


def uneven(name, p, m, sizes):
    """A training configuration whose stages have `sizes` layers, on p ranks."""
    layers = sum(sizes)
    parallel = ParallelConfig(p=p, v=len(sizes) // p, B=m, schedule=name, pipeline_layout=layout_of(sizes))
    return TrainingConfig(ModelConfig(layers, 1024, 16), replace(parallel, recompute="none"))


def most_bytes(config, rank):
    """The most bytes that a rank stashes and defers at once, pass by pass."""
    layer, computes_loss = layer_bytes(config), rank == config.parallel.placement.last
    return most_held(
        config,
        rank,
        lambda layers: stash_bytes(config, SELENE, layers, layer),
        lambda layers: deferred_bytes(config, SELENE, layers, computes_loss, layer),
    )


@pytest.mark.parametrize("name", CHUNKED)
def test_a_rank_holds_as_many_layers_as_its_chunks_have(name):
    p, m = 4, 12
    sizes = [0, 3, 1, 2, 5, 1, 1, 0, 2, 1, 4, 0][: p * max(2, definition(name).chunks[0])]
    config = uneven(name, p, m, sizes)
    memories = rank_memories(config, SELENE, rank_stash_fronts(config), FREED)
    assert [memory["stashed_activations"] for memory in memories] == [most_bytes(config, rank) for rank in range(p)]
    assert simulate(config, SELENE, timeline=True).peak_memory == peak_memory(config, CostModel(SELENE))


@pytest.mark.parametrize("microbatches", [16, 32, 512])
def test_the_layers_of_llama_3_by_hand(microbatches):
    """126 layers, one on each of 16 x 8 chunks but the first and the last, interleaved.

    With as many microbatches as stages every chunk holds all 16. With more, rank r holds 112 + 2 (15 - r) and the pass
    that runs. On rank 0 31 of these are of its first chunk, which is empty. On rank 15, whose last chunk is, the six
    between hold 16 each, and the first one 17 as its second round begins.
    """
    config = uneven("interleaved", 16, microbatches, [0, *[1] * 126, 0])
    each = stash_bytes(config, SELENE, 1, layer_bytes(config))
    memories = rank_memories(config, SELENE, rank_stash_fronts(config), FREED)
    held = [memory["stashed_activations"] / each for memory in memories]
    if microbatches == 16:
        assert held == [112, *[128] * 14, 112]
    else:
        assert held == [112, *[143 - 2 * rank for rank in range(1, 15)], 113]


def test_chunks_of_one_length_are_counted_by_the_schedules_formula():
    even, one_more = (uneven("interleaved", 4, 16, [2] * 12), uneven("interleaved", 4, 16, [3, *[2] * 10, 1]))
    assert rank_stash_fronts(even) == [[(stash, 0)] for stash in definition("interleaved").stash(4, 16, 3)]
    fronts = rank_stash_fronts(one_more)
    assert fronts[1:3] == rank_stash_fronts(even)[1:3]
    assert all(len(moment) == 4 for front in (fronts[0], fronts[3]) for moment in front)
