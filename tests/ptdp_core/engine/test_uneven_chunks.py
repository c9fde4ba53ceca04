"""What a rank keeps whose model chunks have different numbers of layers: measured in the engine, counted, simulated."""

from dataclasses import replace

import pytest

from ptdp_core.launch.local import launch
from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.memory import layer_bytes, stash_bytes
from ptdp_core.simulator.peak_memory import rank_memories, rank_stash_fronts
from tests.ptdp_core.blocks import most_held
from tests.ptdp_core.engine import jobs

P, V = 3, 2  # the middle rank has stages 1 and 4, and neither embedding nor output layer
DENSE = replace(load_cluster("selene"), allocator_efficiency=1.0)
ONE_EACH = {"p": P, "v": V, "B": 9, "layers": 6, "pipeline_layout": "Et|t|t|t|t|tL"}


@pytest.mark.parametrize("schedule", ["interleaved", "breadth-first"])
def test_each_chunk_keeps_as_many_layers_as_it_has(schedule):
    layouts = ["Ett|ttt|tt||t|L", "E|t|tt|tttt|ttt|tL", "E|ttt|tt|t||L", "Ett||tt||ttttt|L"]
    cases = [ONE_EACH | {"schedule": schedule, "recompute": "none", "b": 1}]
    cases += [cases[0] | {"layers": text.count("t"), "pipeline_layout": text} for text in layouts]
    measured = [peaks[1] for peaks in zip(*launch(jobs.most_kept, P, (cases,), timeout=120), strict=True)]
    configs = [jobs.settings_of(case).training for case in cases]
    counted = [most_held(config, 1, stashed=lambda layers: layers) for config in configs]
    of_layer = measured[0] // counted[0]
    assert measured == [of_layer * layers for layers in counted]
    simulated = [rank_memories(config, DENSE, rank_stash_fronts(config), DENSE.software)[1] for config in configs]
    of_table = stash_bytes(configs[0], DENSE, 1, layer_bytes(configs[0]))
    assert [memory["stashed_activations"] for memory in simulated] == [of_table * layers for layers in counted]
