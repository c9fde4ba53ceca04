"""Where everything is: against counting, the closed formulas, the network model, and the engine's own parameters."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import parameters, pipeline_elements, scatter_gather_elements, tensor_parallel_elements
from ptdp_core.layers.blocks import LayerRun, ends
from ptdp_core.layout import (
    WORD_EMBEDDING,
    Boundary,
    RankGrid,
    all_reduces,
    boundary_transfers,
    chunk_layers,
    chunk_parameters,
    gather_transfers,
    layer_parameters,
    node_of,
    rank_elements,
    rank_sizes,
    recomputation_gathers,
    stage_layers,
    stage_passes,
    step_collectives,
)
from ptdp_core.schedules import looped, wave
from ptdp_core.simulator.network import group_of, leaves_node
from tests.ptdp_core.blocks import layer

MODEL = ModelConfig(layers=8, hidden=64, heads=8, seq=32, vocab=1000)
SIZES = st.integers(1, 6)


def held_by_chunk(model, placement, pp, t, pipeline_layout=""):
    """The parameters of each model chunk of a pipeline rank."""
    last = placement.p * placement.v - 1
    chunks = chunk_layers(model.layers, placement, pp, pipeline_layout)
    return [
        chunk_parameters(model, layers, t, is_first=stage == 0, is_last=stage == last)
        for stage, layers in zip(placement.stages[pp], chunks, strict=True)
    ]


@given(p=SIZES, t=SIZES, d=SIZES, c=st.integers(1, 3))
def test_ranks_count_up_with_the_tensor_rank_fastest_and_then_the_context_rank(p, t, d, c):
    grid = RankGrid.sized(p, t, d, c)
    # An odometer, written independently of the grid's arithmetic.
    odometer = list(product(range(p), range(d), range(c), range(t)))
    places = [grid.coordinates(rank) for rank in range(grid.n)]
    assert [tuple(place[axis] for axis in ("pp", "dp", "cp", "tp")) for place in places] == odometer
    assert [grid.rank(**place) for place in places] == list(range(p * t * d * c))


@given(p=SIZES, t=SIZES, d=SIZES, c=st.integers(1, 3))
def test_each_kind_of_group_holds_every_rank_once(p, t, d, c):
    grid = RankGrid.sized(p, t, d, c)
    for axes, count, size, stride in (
        (("tp",), p * d * c, t, 1),
        (("cp",), p * d * t, c, t),
        (("dp",), p * t * c, d, t * c),
        (("dp", "cp"), p * t, d * c, t),  # those that hold the same parameters
        (("pp",), d * t * c, p, d * t * c),
    ):
        groups = grid.groups(*axes)
        assert grid.size(*axes) == size
        assert sorted(rank for group in groups for rank in group) == list(range(grid.n))
        assert [len(group) for group in groups] == [size] * count
        assert all(b - a == stride for group in groups for a, b in pairwise(group))


@pytest.mark.parametrize(("p", "t", "d"), [(4, 8, 2), (2, 16, 2), (8, 2, 4), (8, 1, 2), (2, 4, 8), (64, 8, 6)])
def test_the_network_model_places_groups_as_the_grid_does(p, t, d):
    grid, per_node = RankGrid.sized(p, t, d), 8
    nodes = lambda group: {node_of(rank, per_node) for rank in group}  # noqa: E731
    assert {len(nodes(group)) for group in grid.groups("tp")} == {group_of(t, per_node).nodes}
    assert {len(nodes(group)) for group in grid.groups("dp")} == {group_of(d, per_node, t).nodes}
    for pp in range(p):
        hops = [(chain[pp], chain[(pp + 1) % p]) for chain in grid.groups("pp")]
        assert any(len(nodes(hop)) == 2 for hop in hops) == leaves_node(t * d, pp, (pp + 1) % p, per_node)


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (126, 16, [7, *[8] * 14, 7]),  # Llama 3: one layer less on the first and on the last stage
        (70, 12, [5, *[6] * 10, 5]),  # BLOOM
        (22, 8, [2, *[3] * 6, 2]),
        (7, 4, [2, 2, 2, 1]),
        (5, 4, [1, 2, 1, 1]),
    ],
)
def test_uneven_stages_have_a_layer_less_at_the_ends(layers, stages, sizes):
    assert [len(stage) for stage in stage_layers(layers, stages)] == sizes


@given(stages=st.integers(1, 40), more=st.integers(0, 200))
def test_stages_hold_every_layer_once_and_differ_by_one_at_most(stages, more):
    layers = stages + more
    split = stage_layers(layers, stages)
    assert [layer for stage in split for layer in stage] == list(range(layers))
    sizes = list(map(len, split))
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes)


def test_a_layout_says_the_layers_of_each_stage():
    sizes = lambda text: [len(stage) for stage in stage_layers(126, 16, text)]  # noqa: E731
    assert sizes("Et*7|(t*8|)*14t*7L") == [7, *[8] * 14, 7]
    assert sizes("E|(t*9|)*14L") == [0, *[9] * 14, 0]
    split = stage_layers(126, 16, "E|(t*9|)*14L")
    assert [layer for stage in split for layer in stage] == list(range(126))


@pytest.mark.parametrize(
    ("p", "v", "placement", "text"),
    [
        (4, 1, looped, "Et|t*4||t*3L"),
        (2, 2, wave, "E|t*3|t*5|L"),
        (4, 2, looped, "E|t|tt|(t|)*4tL"),
        (1, 1, looped, "Et*8L"),
    ],
)
@pytest.mark.parametrize("t", [1, 2])
def test_only_the_first_chunk_embeds_and_only_the_last_has_the_output(p, v, placement, text, t):
    """Also beside chunks without a layer, which begin or end where they do."""
    placed = placement(p, v)
    held = [held_by_chunk(MODEL, placed, pp, t, text) for pp in range(p)]
    names = [parameter.name for chunks in held for chunk in chunks for parameter in chunk if not parameter.copy]
    assert sorted(names) == sorted(parameter.name for parameter in chunk_parameters(MODEL, range(8), t))
    assert [q.name for q in held[placed.first][0]][:1] == [WORD_EMBEDDING]
    assert "norm.weight" in [q.name for q in held[placed.last][-1]]


def test_chunks_are_as_the_paper_lays_them_out():
    one_based = lambda ranges: [layer + 1 for chunk in ranges for layer in chunk]  # noqa: E731
    assert one_based(chunk_layers(16, looped(4, 1), 0)) == [1, 2, 3, 4]
    assert one_based(chunk_layers(16, looped(4, 2), 0)) == [1, 2, 9, 10]  # Section 2.2.2
    assert one_based(chunk_layers(16, looped(4, 2), 1)) == [3, 4, 11, 12]


@pytest.mark.parametrize(("p", "v"), [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (8, 1)])
def test_all_chunks_together_are_the_model(p, v):
    on_chunks = [
        parameter for pp in range(p) for held in held_by_chunk(MODEL, looped(p, v), pp, 2) for parameter in held
    ]
    # Equation 2 leaves out the final layer norm.
    assert sum(q.elements for q in on_chunks if not q.copy) == parameters(MODEL) + 2 * MODEL.hidden
    assert len({q.name for q in on_chunks}) == len(on_chunks) - sum(q.copy for q in on_chunks)
    assert sum(q.copy for q in on_chunks) == (p > 1)


@pytest.mark.parametrize("t", [1, 2, 4, 8])
def test_shards_tile_their_parameter(t):
    for parameter in chunk_parameters(MODEL, range(8), t):
        shards = [parameter.shard(t, tp) for tp in range(t)]
        if parameter.split is None:
            assert all((s.shape, s.padding) == (parameter.shape, 0) for s in shards)
            continue
        assert [s.start for s in shards] == [0, *(s.stop for s in shards[:-1])]
        assert shards[-1].stop == parameter.shape[parameter.split]
        assert len({s.shape for s in shards}) == 1
        padding = sum(s.elements // s.shape[parameter.split] * s.padding for s in shards)
        assert sum(s.elements for s in shards) - padding == parameter.elements


@pytest.mark.parametrize("t", [1, 4])
def test_sums_over_all_ranks_count_every_element_once(t):
    """What all tensor ranks hold, on the first of them; the tied copy on none."""
    for held in (chunk for pp in range(2) for chunk in held_by_chunk(MODEL, looped(2, 1), pp, t)):
        for parameter in held:
            shards = [parameter.shard(t, tp) for tp in range(t)]
            counted = sum(
                shard.elements // shard.shape[parameter.split or 0] * (shard.stop - shard.start)
                for tp, shard in enumerate(shards)
                if shard.counts(tp)
            )
            assert counted == (0 if parameter.copy else parameter.elements)


@pytest.mark.parametrize(
    ("p", "t", "v", "text"),
    [(1, 1, 1, ""), (1, 4, 1, ""), (2, 2, 1, ""), (4, 8, 2, ""), (4, 2, 1, "E|t*5|t*3|L"), (2, 1, 2, "E||t*5|t*3L")],
)
def test_ranks_hold_the_parameters_of_their_chunks(p, t, v, text):
    config = TrainingConfig(MODEL, ParallelConfig(p=p, t=t, v=v, B=p, pipeline_layout=text))
    per_rank = [
        sum(
            parameter.shard(t, 0).elements
            for chunk in held_by_chunk(MODEL, looped(p, v), pp, t, text)
            for parameter in chunk
        )
        for pp in range(p)
    ]
    assert per_rank == rank_elements(config)


def test_a_layer_reduces_twice_each_way_as_the_cost_model_does():
    forward, backward = all_reduces(layer_parameters(MODEL, 0))
    assert (forward, backward) == (2, 2)
    assert forward == len(layer(MODEL, 1, 2).forward.all_reduce_bytes)
    assert backward == len(layer(MODEL, 1, 2).backward.all_reduce_bytes)
    for t in (2, 4, 8):  # a ring sends 2(t-1)/t of what it reduces
        ring = (forward + backward) * pipeline_elements(MODEL, 3) * 2 * (t - 1) / t
        assert ring == pytest.approx(tensor_parallel_elements(MODEL, 3, t))


@pytest.mark.parametrize("t", [1, 2, 8])
def test_scatter_gather_sends_each_element_once_between_nodes(t):
    grid, size = RankGrid.sized(2, t, 1), pipeline_elements(MODEL, 1)
    plain, scattered = (boundary_transfers(grid, 0, 1, 0, size, on) for on in (False, True))
    assert [(s.source, s.destination) for s in plain] == [(rank, rank + t) for rank in range(t)]
    assert [(s.source, s.destination) for s in plain] == [(s.source, s.destination) for s in scattered]
    assert [s.elements for s in plain] == [size] * t
    assert [s.elements for s in scattered] == [scatter_gather_elements(MODEL, 1, t)] * t
    # Chunks that arrive, and those gathered, are the whole tensor on every rank, without overlap.
    for rank in range(t, 2 * t):
        parts = [s for s in (*scattered, *gather_transfers(grid, 1, 0, size)) if s.destination == rank]
        assert sorted(i for part in parts for i in range(part.start, part.stop)) == list(range(size))
    assert all(s.source >= t for s in gather_transfers(grid, 1, 0, size))


SIZES_OF_A_LLAMA = {"kv_heads": 4, "ffn_hidden": 96, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}
LLAMA = replace(MODEL, tied_embeddings=False, bias=False, **SIZES_OF_A_LLAMA)


@pytest.mark.parametrize("model", [MODEL, LLAMA], ids=["gpt", "llama"])
@pytest.mark.parametrize(("p", "t", "v"), [(1, 1, 1), (2, 4, 2), (2, 2, 1)])
def test_the_engine_holds_the_same_slices(p, t, v, model):
    torch = pytest.importorskip("torch")
    for module in ("parameters", "groups", "model"):
        pytest.importorskip(f"ptdp_core.engine.{module}", exc_type=ImportError)
    from kernels.selection import select
    from ptdp_core.engine.groups import Axis
    from ptdp_core.engine.model import Build, build_chunks
    from ptdp_core.engine.parameters import ParameterStore
    from ptdp_core.engine.settings import Settings

    config = TrainingConfig(model, ParallelConfig(p=p, t=t, v=v, B=p))
    grid = RankGrid.of(config.parallel)
    for rank in range(grid.n):
        pp, tp = (grid.coordinates(rank)[axis] for axis in ("pp", "tp"))
        axis = Axis("tp", tp, t)
        store = ParameterStore(0, axis, torch.device("cpu"), torch.float32)
        build_chunks(Build(Settings(model, config.parallel), store, select("reference"), None), looped(p, v), pp)
        per_rank = {(local.shard, local.chunk) for local in store.parameters}
        assert all(tuple(local.tensor.shape) == local.shard.shape for local in store.parameters)
        assert per_rank == {
            (parameter.shard(t, tp), chunk)
            for chunk, held in enumerate(held_by_chunk(model, looped(p, v), pp, t))
            for parameter in held
        }
        assert sum(local.tensor.numel() for local in store.parameters) == rank_elements(config)[pp]


@pytest.mark.parametrize(("p", "t", "asked"), [(1, 2, True), (2, 1, True), (2, 2, False), (2, 2, True)])
def test_scatter_gather_is_in_effect_where_there_are_both_stages_and_tensor_ranks(p, t, asked):
    config = TrainingConfig(MODEL, ParallelConfig(p=p, t=t, B=p, scatter_gather=asked))
    boundary, size = Boundary.of(config), pipeline_elements(MODEL, 1)
    in_effect = p > 1 and t > 1 and asked
    assert boundary.is_scattered is in_effect
    assert boundary.elements == size
    assert (boundary.gather is not None) is in_effect
    assert boundary.message_elements == (scatter_gather_elements(MODEL, 1, t) if in_effect else size)
    if p > 1:
        sent = boundary_transfers(RankGrid.of(config.parallel), 0, 1, 0, size, asked)
        assert {transfer.elements for transfer in sent} == {boundary.message_elements}


def operations(calls):
    return [call.operation for call in calls]


def test_with_sequence_parallelism_a_layer_gathers_and_scatters():
    """Korthikanti et al. 2022: four collectives each way, and each linear block's input once more."""
    forward, backward = layer(MODEL, 3, 4, sequence_parallel=True).collectives
    assert operations(forward) == ["all_gather", "reduce_scatter"] * 2
    assert sorted(operations(backward)) == ["all_gather"] * 4 + ["reduce_scatter"] * 2
    assert {(call.group, call.elements) for call in (*forward, *backward)} == {("tp", pipeline_elements(MODEL, 3))}
    assert [operations(calls) for calls in layer(MODEL, 3, 4).collectives] == [["all_reduce"] * 2] * 2  # without it
    assert layer(MODEL, 3, 1, sequence_parallel=True).collectives == layer(MODEL, 3).collectives == ((), ())
    for t in (2, 4, 8):  # as many bytes as two all-reduces each way, but for the two inputs that are gathered again
        sent = [sum(call.sent(t) for call in calls) for calls in layer(MODEL, 3, t, sequence_parallel=True).collectives]
        again = 2 * pipeline_elements(MODEL, 3) * (t - 1) / t
        assert sent[0] == pytest.approx(tensor_parallel_elements(MODEL, 3, t) / 2)
        assert sent[1] == pytest.approx(tensor_parallel_elements(MODEL, 3, t) / 2 + again)


def test_with_sequence_parallelism_the_ends_gather_and_scatter():
    first, last = (end.collectives for end in ends(MODEL, LayerRun(1, 2, sequence_parallel=True)))
    assert [operations(calls) for calls in first] == [["reduce_scatter"], ["all_gather"]]
    into, out_of = last
    assert operations(into) == ["all_gather"] + ["all_reduce"] * 3  # the loss reduces single numbers per token
    assert operations(out_of) == ["all_gather", "reduce_scatter"]


@pytest.mark.parametrize("recompute", ["full", "none"])
def test_a_stage_has_the_collectives_of_its_layers_and_ends(recompute):
    layers, passes = 4, (2, 2 if recompute == "none" else 4)
    for on, per_reduce in ((False, 1), (True, 2)):  # one that reduces, or one that gathers and one that scatters
        parallel = ParallelConfig(p=2, t=2, B=2, recompute=recompute, sequence_parallel=on)
        first, last = (stage_passes(TrainingConfig(MODEL, parallel), stage) for stage in (0, 1))
        again = layers * 2 * on  # inputs gathered for the weights' gradients
        assert len(first.forward) == layers * passes[0] * per_reduce + 1
        assert len(first.backward) == layers * passes[1] * per_reduce + again + on
        assert len(last.forward) == layers * passes[0] * per_reduce + on
        assert len(last.backward) == layers * passes[1] * per_reduce + again + 1 + on


@pytest.mark.parametrize(("p", "v"), [(1, 1), (2, 1), (4, 2)])
def test_gradients_of_whole_parameters_are_summed_once_a_step(p, v):
    """A layer has 6h of them: two layer norms, two biases; beside these there are the positions and the last norm."""
    config = TrainingConfig(MODEL, ParallelConfig(p=p, t=4, v=v, B=p, sequence_parallel=True))
    held = [
        sum(
            parameter.elements
            for chunk in held_by_chunk(MODEL, looped(p, v), pp, 4)
            for parameter in chunk
            if parameter.shard(4, 0).shape == parameter.shape
        )
        for pp in range(p)
    ]
    assert [sizes.whole for sizes in rank_sizes(config)] == held
    assert sum(held) == MODEL.hidden * (6 * MODEL.layers + MODEL.seq + 2)
    for elements, calls in zip(held, step_collectives(config), strict=True):
        assert [(c.operation, c.elements) for c in calls if c.group == "tp"] == [("all_reduce", elements)]
    for other in (ParallelConfig(p=p, t=4, v=v, B=p), ParallelConfig(p=p, v=v, B=p, sequence_parallel=True)):
        assert not [c for calls in step_collectives(TrainingConfig(MODEL, other)) for c in calls if c.group == "tp"]


@pytest.mark.parametrize(
    ("d", "sharded", "expected"),
    [(1, False, []), (2, False, ["all_reduce"]), (2, True, ["reduce_scatter", "all_gather"])],
)
def test_a_step_sums_gradients_over_replicas_and_the_tied_tables_over_both_ends(d, sharded, expected):
    parallel = ParallelConfig(p=4, t=2, d=d, B=8, sharded_optimizer=sharded, sequence_parallel=True)
    config = TrainingConfig(MODEL, parallel)
    ranks = step_collectives(config)
    for elements, calls in zip(rank_elements(config), ranks, strict=True):
        assert [(c.operation, c.elements) for c in calls if c.group == "dp"] == [(name, elements) for name in expected]
        assert operations(c for c in calls if c.group == "tp") == ["all_reduce"]
    table = 1024 // 2 * MODEL.hidden  # 1000 rows, padded to a multiple of 128*t
    assert [[c.elements for c in calls if c.group == "embedding"] for calls in ranks] == [[table], [], [], [table]]


@pytest.mark.parametrize("in_parts", [True, False])
def test_inputs_of_recomputed_blocks_that_are_kept_in_parts_are_gathered_once_each(in_parts):
    parallel = ParallelConfig(p=2, t=2, B=2, checkpoint_layers=3, distribute_checkpointed_activations=in_parts)
    calls = recomputation_gathers(TrainingConfig(MODEL, parallel), 4)  # blocks of 3 layers and of 1
    gather = ("all_gather", "tp", pipeline_elements(MODEL, 1), "activation")
    assert list(calls) == [gather] * 2 * in_parts


@pytest.mark.parametrize("scatter_gather", [True, False])
def test_with_sequence_parallelism_scatter_gather_is_void(scatter_gather):
    parallel = ParallelConfig(p=2, t=4, b=3, B=6, scatter_gather=scatter_gather, sequence_parallel=True)
    boundary = Boundary.of(TrainingConfig(MODEL, parallel))
    assert boundary == Boundary((MODEL.seq // 4, 3, MODEL.hidden), 1)
    assert boundary.message_shape == boundary.shape
    assert boundary.message_elements == scatter_gather_elements(MODEL, 3, 4)  # as many as with it
    assert boundary.gather is None
