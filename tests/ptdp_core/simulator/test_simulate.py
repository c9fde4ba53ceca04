"""The simulator as a whole: its books balance, its counts are the paper's, and it predicts the paper's throughputs."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptdp_core import formulas
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig, training
from ptdp_core.layers.parts import Work
from ptdp_core.layout import Boundary, rank_elements
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import Exchange, build, definition, lower, names
from ptdp_core.simulator import PHASES, cluster_path, load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.executor import PICOSECONDS, Costs
from ptdp_core.simulator.peak_memory import peak_memory
from ptdp_core.simulator.simulate import _bubble_times
from ptdp_core.simulator.step import gradient_copies, gradient_reduction
from results import ROOT
from tests.ptdp_core.blocks import layer
from tests.ptdp_core.schedules.cases import sizes

SELENE = load_cluster("selene")
GPT3 = ModelConfig(96, 12288, 96)
PUBLISHED = json.loads((ROOT / "reproduce" / "papers" / "sc21" / "published.json").read_text())["artifacts"]


def gpt3(**parallel):
    return TrainingConfig(GPT3, ParallelConfig(**{"p": 12, "t": 8, "B": 48} | parallel))


@st.composite
def configurations(draw):
    p, t, d, b = (draw(st.sampled_from([1, 2, 4, 8])) for _ in "ptdb")
    v = draw(st.sampled_from([1, 2])) if p > 1 else 1
    schedule = draw(st.sampled_from(["", "zb-h1"])) if v == 1 else ""
    m = p * draw(st.integers(1, 4)) if v > 1 else draw(st.integers(1, 20))
    parallel = ParallelConfig(
        p=p,
        t=t,
        d=d,
        v=v,
        b=b,
        B=m * d * b,
        schedule=schedule,
        scatter_gather=draw(st.booleans()),
        recompute=draw(st.sampled_from(["full", "selective", "none"])),
        data_parallel=draw(st.sampled_from(["local", "torch"])),
    )
    return TrainingConfig(ModelConfig(layers=16, hidden=4096, heads=32), parallel)


@given(configurations())
@settings(deadline=None, max_examples=80)
def test_phases_add_up_and_nothing_is_negative(config):
    estimate = simulate(config, SELENE)
    assert tuple(estimate.phase_times) == PHASES
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    assert min(estimate.phase_times.values()) > -1e-9
    assert estimate.peak_memory == sum(estimate.memory_bytes.values())
    assert estimate.throughput_per_gpu < SELENE.peak_flops * SELENE.gemm_plateau * 4 / 3


@given(configurations())
@settings(deadline=None, max_examples=40)
def test_the_timeline_agrees_with_the_phases(config):
    estimate = simulate(config, SELENE, timeline=True)
    totals = {"forward": 0.0, "exchange": 0.0}
    for events in estimate.timeline:
        for early, late in pairwise(events):
            assert early.end <= late.start + 1e-9
        assert events[-1].end <= estimate.iteration_time + 1e-9
        totals["exchange"] += sum(event.end - event.start for event in events if event.kind == "exchange")
        totals["forward"] += sum(event.end - event.start for event in events if event.kind in "FBIW")
    p = config.parallel.p
    assert totals["exchange"] / p == pytest.approx(estimate.phase_times["pipeline_communication"], abs=1e-9)
    fetches = estimate.phase_times["host"] - SELENE.iteration_host_time
    assert totals["forward"] / p == pytest.approx(sum(estimate.phase_times[name] for name in PHASES[:4]) + fetches)


@given(configurations())
@settings(deadline=None, max_examples=60)
def test_bytes_are_the_papers_volumes(config):
    model, parallel = config.model, config.parallel
    sent = simulate(config, SELENE).traffic
    t, b, m = parallel.t, parallel.b, parallel.m
    # Section 3.2: 8bsh(t-1)/t elements a layer; the recomputed forward pass adds half of it (facts of the code)
    per_layer = formulas.tensor_parallel_elements(model, b, t) * (1.5 if parallel.recompute == "full" else 1.0)
    gathers = 0.0
    if parallel.p > 1 and parallel.scatter_gather:
        gathers = sent["pipeline"] * (t - 1)
    layers = model.layers // parallel.p
    assert sent["tensor"] == pytest.approx(2 * per_layer * layers * m + gathers, rel=1e-9, abs=2)
    elements = (
        formulas.scatter_gather_elements(model, b, t)
        if parallel.scatter_gather
        else formulas.pipeline_elements(model, b)
    )
    # The rank that sends most: of every lowered schedule, a rank's messages.
    program = lower(build(parallel.schedule, parallel.p, m, parallel.v), "blocking")
    messages = [sum(len(i.sends) for i in rank if isinstance(i, Exchange)) for rank in program.ranks]
    assert sent["pipeline"] == pytest.approx(2 * elements * max(messages), abs=1)


def test_interleaving_multiplies_pipeline_communication_by_v_and_scatter_gather_divides_it_by_t():
    plain = simulate(gpt3(), SELENE).traffic["pipeline"]
    assert simulate(gpt3(v=4), SELENE).traffic["pipeline"] == 4 * plain  # Section 2.2.2
    assert simulate(gpt3(scatter_gather=False), SELENE).traffic["pipeline"] == 8 * plain  # Section 4.1


def test_the_tied_tables_are_summed_by_both_ends_alone():
    """Two ranks each send one copy of the table's gradients on a ring, V*h/t of them."""
    assert simulate(gpt3(), SELENE).traffic["embedding"] == SELENE.gradient_bytes * 51200 * 12288 / 8
    assert simulate(gpt3(p=1, t=8), SELENE).traffic["embedding"] == 0


def test_what_cost_models_keep_is_bounded_for_all_of_them_together(monkeypatch):
    monkeypatch.setattr(training, "MOST_KEPT", 6)
    monkeypatch.setattr(training, "_VALUES", {})
    models = [CostModel(SELENE) for _ in range(4)]
    times = [model.stages(gpt3(d=d, B=24 * d)) for d in (1, 2) for model in models]
    assert 0 < len(training._VALUES) <= 6
    assert times == times[:1] * 8  # values that went are computed again


def test_an_ideal_cluster_leaves_the_bubble_of_the_formula():
    """Free communication and no embedding or logits to speak of: the executed bubble is (p-1)/(vm)."""
    ideal = replace(
        SELENE, p2p_bandwidth=1e20, hca_bandwidth=1e20, nvlink_bandwidth_8=1e20, nvlink_latency_8=1e-12,
        exchange_host_time=1e-12, iteration_host_time=1e-12,
    )  # fmt: skip
    model = ModelConfig(96, 12288, 96, vocab=1024)
    for v in (1, 4):
        estimate = simulate(TrainingConfig(model, ParallelConfig(p=12, t=8, v=v, B=48)), ideal)
        assert estimate.bubble_fraction == pytest.approx(formulas.bubble_fraction(12, 48, v), rel=0.1)


@pytest.mark.parametrize("v", [1, 4])
def test_the_bubble_of_equal_stages_and_free_messages_is_fill_and_drain(v):
    """(p-1)/(vm) of a rank's passes (Section 2.2), whatever the stages and messages of the estimate itself are."""
    config = gpt3(v=v)
    estimate, (p, m) = simulate(config, SELENE, bubble_times=True), (config.parallel.p, config.parallel.m)
    phases, causes = estimate.phase_times, estimate.bubble_times
    assert sum(causes.values()) == pytest.approx(phases["bubble"], rel=1e-12)
    passes = sum(phases[name] for name in PHASES[:4]) + m * v * SELENE.microbatch_host_time
    assert causes["fill_and_drain"] == pytest.approx(passes * formulas.bubble_fraction(p, m, v), rel=1e-9)
    assert causes["stage_imbalance"] > 0  # the logits
    assert simulate(config, SELENE).bubble_times == {}


def test_where_nothing_takes_time_but_equal_stages_the_whole_bubble_is_fill_and_drain():
    config = gpt3()
    p, m = config.parallel.p, config.parallel.m
    free = Costs([5] * p, [11] * p, ([0] * p, [0] * p), gather=0, exchange=0, weight_gradient=[4] * p)
    times = _bubble_times(config.parallel, free, bubble=(p - 1) * 16 / PICOSECONDS, message_waiting=0.0)
    assert times == {"fill_and_drain": (p - 1) * 16 / PICOSECONDS, "stage_imbalance": 0.0, "message_waiting": 0.0}
    assert times["fill_and_drain"] / (16 * m / PICOSECONDS) == pytest.approx(formulas.bubble_fraction(p, m))


@given(sizes(range(1, 7), range(1, 25)), st.integers(0, 6), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 4]))
@settings(deadline=None, max_examples=40)
def test_the_causes_of_the_bubble_add_up_to_it(size, more, t, d):
    name, p, m, v = size
    layers = p * v + more  # stages may differ by a layer
    parallel = ParallelConfig(p=p, t=t, d=d, v=v, b=2, B=2 * d * m, schedule=name)
    config = TrainingConfig(ModelConfig(layers, 1024, 16), parallel)
    estimate = simulate(config, SELENE, bubble_times=True)
    causes = estimate.bubble_times
    assert sum(causes.values()) == pytest.approx(estimate.phase_times["bubble"], rel=1e-12, abs=1e-12)  # a picosecond
    assert replace(estimate, bubble_times={}) == simulate(config, SELENE)
    bubble = definition(name).bubble
    if name in ("gpipe", "1f1b", "interleaved"):
        passes = estimate.phase_times["host"] - SELENE.iteration_host_time
        passes += sum(estimate.phase_times[phase] for phase in PHASES[:4])
        chunk = passes / (m * v)
        assert causes["fill_and_drain"] == pytest.approx(bubble(p, m, v, chunk / 3, 2 * chunk / 3, 0), rel=1e-6)
    if p == 1:
        assert causes == {"fill_and_drain": 0.0, "stage_imbalance": pytest.approx(0, abs=1e-9), "message_waiting": 0.0}


def test_gpipe_takes_as_long_as_1f1b_and_needs_more_memory():
    gpipe, flush = (simulate(gpt3(b=4, B=192, schedule=name), SELENE) for name in ("gpipe", "1f1b"))
    assert gpipe.iteration_time == pytest.approx(flush.iteration_time, rel=0.02)
    assert gpipe.memory_bytes["stashed_activations"] == 4 * flush.memory_bytes["stashed_activations"]  # m = 48, p = 12


def test_split_backward_passes_are_whole_ones_in_two_parts():
    """ZB-H1 does the same work as 1F1B, sends the same bytes, and waits less: by (p-1) times two W, nearly."""
    flush, split = (simulate(gpt3(schedule=name), SELENE, timeline=True) for name in ("1f1b", "zb-h1"))
    for phase in ("forward", "recompute", "backward", "embedding_and_logits", "data_parallel", "optimizer", "host"):
        assert split.phase_times[phase] == pytest.approx(flush.phase_times[phase])
    assert split.traffic == flush.traffic
    weights = CostModel(SELENE).stages(gpt3())[1].weight_gradient
    assert flush.iteration_time - split.iteration_time == pytest.approx(11 * 2 * weights, rel=0.05)
    for events in split.timeline:
        lasts = {event.kind: event.end - event.start for event in events}
        assert {"F", "I", "W"} <= set(lasts)
        assert "B" not in lasts
    middle = {event.kind: event.end - event.start for event in split.timeline[5]}
    whole = {event.kind: event.end - event.start for event in flush.timeline[5]}
    assert middle["I"] + middle["W"] == pytest.approx(whole["B"])
    assert middle["W"] == pytest.approx(weights)


def test_weight_gradients_are_half_of_the_linears_backward_gemms_and_the_accumulation():
    whole, weights = layer(GPT3, 2, 8).backward, layer(GPT3, 2, 8).weights
    linears = [gemm for gemm in whole.gemms if gemm[3] == 1]
    assert len(linears) == 2 * len(weights.gemms) == 8
    assert set(weights.gemms) < set(linears)
    assert 2 * sum(m * n * k for m, n, k, _ in weights.gemms) == sum(m * n * k for m, n, k, _ in linears)
    assert weights.traffic_bytes == 0
    assert not weights.all_reduce_bytes
    model = CostModel(SELENE)
    once, often = (model.stages(gpt3(B=B))[1] for B in (1, 12))  # nothing to add to for m = 1
    assert once.weight_gradient < often.weight_gradient
    assert once.input_gradient == pytest.approx(often.input_gradient)
    *_, inner, last = model.stages(gpt3(B=1))  # the last stage also has the output layer's GEMM of 2bshV/t FLOPs
    flops = 2 * GPT3.seq * GPT3.hidden * GPT3.vocab / 8
    assert flops / SELENE.peak_flops < last.weight_gradient - inner.weight_gradient < 2 * flops / SELENE.peak_flops


def test_split_backward_passes_need_1f1bs_memory_without_recomputation_and_more_with_it():
    """Qi et al. compare without recomputation. With it, what I has recomputed waits for W, and outweighs the stash."""
    for recompute, most in (("none", 1.0), ("full", 2.0)):
        flush, split = (simulate(gpt3(schedule=name, recompute=recompute), SELENE) for name in ("1f1b", "zb-h1"))
        assert flush.peak_memory <= split.peak_memory <= most * flush.peak_memory
        assert (split.peak_memory > flush.peak_memory) == (recompute == "full")
    # By hand, the last rank at its fullest: 12 W to come, of 8 layers with bsh(8 + 24/t) bytes each, and the logits.
    unit = 2048 * 12288
    last = 12 * (8 * (8 + 24 / 8) * unit + 2 * unit + 2 * 2048 * 51200 / 8) / SELENE.allocator_efficiency
    assert split.memory_bytes["stashed_activations"] == pytest.approx(last)


def test_nothing_overlaps_with_the_last_weight_gradients():
    flush, split = (
        simulate(gpt3(p=2, d=4, schedule=name, data_parallel="torch"), SELENE) for name in ("1f1b", "zb-h1")
    )
    local = simulate(gpt3(p=2, d=4, schedule="zb-h1", data_parallel="local"), SELENE)
    assert flush.phase_times["data_parallel"] < split.phase_times["data_parallel"] == local.phase_times["data_parallel"]


def test_recomputation_trades_time_for_memory():
    full, none = (simulate(gpt3(b=4, B=192, recompute=name), SELENE) for name in ("full", "none"))
    assert none.iteration_time < full.iteration_time
    assert none.memory_bytes["stashed_activations"] > 5 * full.memory_bytes["stashed_activations"]
    assert none.phase_times["recompute"] == 0


@pytest.mark.parametrize(("layers", "p", "v", "schedule"), [(70, 12, 1, ""), (126, 16, 1, "zb-h1"), (70, 6, 2, "")])
@pytest.mark.parametrize("recompute", ["full", "none"])
def test_uneven_stages_lie_between_their_even_neighbours(layers, p, v, schedule, recompute):
    """BLOOM's and Llama 3's numbers of layers; the longest stages are as long as those of the next even model."""
    parallel = ParallelConfig(p=p, t=8, v=v, B=4 * p, schedule=schedule, recompute=recompute)
    even = -(-layers // (p * v)) * p * v
    models = [ModelConfig(count, 8192, 64) for count in (even - p * v, layers, even)]
    below, uneven, above = (simulate(TrainingConfig(model, parallel), SELENE) for model in models)
    assert below.iteration_time < uneven.iteration_time < above.iteration_time
    assert below.peak_memory < uneven.peak_memory <= above.peak_memory
    assert below.traffic["tensor"] < uneven.traffic["tensor"] == above.traffic["tensor"]
    assert uneven.traffic["pipeline"] == above.traffic["pipeline"]
    passes = sum(uneven.phase_times[name] for name in ("forward", "recompute", "backward"))
    assert passes * even == pytest.approx(
        layers * sum(above.phase_times[name] for name in ("forward", "recompute", "backward"))
    )
    if schedule != "zb-h1":
        assert peak_memory(uneven.config, CostModel(SELENE)) == uneven.peak_memory
        assert least_time(uneven.config, CostModel(SELENE)) <= uneven.iteration_time


@pytest.mark.parametrize(
    ("layers", "p", "v", "even"), [(126, 16, 1, "Et*7|(t*8|)*14t*7L"), (96, 6, 2, "E(t*8|)*11t*8L")]
)
def test_an_even_layout_written_out_changes_nothing(layers, p, v, even):
    model, parallel = ModelConfig(layers, 8192, 64), ParallelConfig(p=p, t=8, v=v, B=4 * p, recompute="none")
    plain, written = (
        simulate(TrainingConfig(model, replace(parallel, pipeline_layout=text)), SELENE, timeline=True)
        for text in ("", even)
    )
    assert replace(written, config=plain.config) == plain


def test_a_stage_takes_its_layers_and_the_end_of_the_model_that_it_holds():
    model = ModelConfig(10, 8192, 64)
    even = CostModel(SELENE).stages(TrainingConfig(model, ParallelConfig(p=5, t=8, B=8)))
    parallel = ParallelConfig(p=5, t=8, B=8, pipeline_layout="E|t*2|t*5|t*3|L")
    stages = CostModel(SELENE).stages(TrainingConfig(model, parallel))
    layer = even[2].layers_forward / 2
    assert [stage.layers_forward for stage in stages] == pytest.approx([k * layer for k in (0, 2, 5, 3, 0)])
    assert [stage.extra_forward for stage in stages] == [stage.extra_forward for stage in even]
    assert stages[0].backward == even[0].extra_backward
    assert stages[4].weight_gradient > stages[0].weight_gradient > 0


@pytest.mark.parametrize("name", names())
def test_every_schedule_executes_chunks_without_a_layer(name):
    """Zero Bubble's models of l layers for l + 2 stages: the first and the last stage are the model's ends alone."""
    p, v = 4, definition(name).chunks[0]
    model, m = ModelConfig(6 * p * v - 12, 4096, 32), 3 * p
    parallel = ParallelConfig(p=p, v=v, B=m, schedule=name, pipeline_layout=layout_of((0, *[6] * (p * v - 2), 0)))
    config, cost = TrainingConfig(model, parallel), CostModel(SELENE)
    estimate = simulate(config, SELENE, timeline=True)
    stages = cost.stages(config)
    assert {stages[0].layers_backward, stages[-1].layers_backward} == {0.0}
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    compute = [estimate.phase_times[name] for name in ("forward", "recompute", "backward", "embedding_and_logits")]
    assert sum(compute) * p == pytest.approx(
        m * (sum(stage.forward + stage.backward for stage in stages) - p * v * stages[0].fetch)
    )
    assert least_time(config, cost) <= estimate.iteration_time
    assert peak_memory(config, cost) == estimate.peak_memory


@pytest.mark.parametrize("kind", ["local", "torch"])
def test_a_sharded_optimizer_keeps_the_traffic_and_divides_states_and_step(kind):
    """ZeRO-1: a reduce-scatter and an all-gather are what a ring's all-reduce is, in two halves."""
    plain, sharded = (
        simulate(gpt3(d=8, B=384, data_parallel=kind, sharded_optimizer=on), SELENE, timeline=True)
        for on in (False, True)
    )
    assert sharded.traffic == plain.traffic
    assert sharded.memory_bytes["optimizer"] == pytest.approx(plain.memory_bytes["optimizer"] / 8)
    assert sharded.memory_bytes["weights"] == plain.memory_bytes["weights"]
    # A kernel's gap does not shrink with its bytes.
    assert sharded.phase_times["optimizer"] == pytest.approx(plain.phase_times["optimizer"] / 8, rel=1e-3)
    assert sum(sharded.phase_times.values()) == pytest.approx(sharded.iteration_time)
    assert max(events[-1].end for events in sharded.timeline) == pytest.approx(sharded.iteration_time)
    if kind == "local":
        assert sharded.phase_times["data_parallel"] == pytest.approx(plain.phase_times["data_parallel"])
    assert least_time(sharded.config, CostModel(SELENE)) <= sharded.iteration_time


@pytest.mark.parametrize(("p", "t", "recompute"), [(1, 1, "full"), (4, 8, "none")])
def test_zero_2_keeps_a_share_of_the_gradients_and_sends_those_of_each_microbatch(p, t, recompute):
    """Rajbhandari et al. 2020, Section 5.2: 2P + (2 + 12)P/d bytes; d - 1 d-ths of P once for each, and to gather."""
    parallel = ParallelConfig(p=p, t=t, d=8, B=64, sharded_optimizer=True, data_parallel="torch", recompute=recompute)
    model, m = ModelConfig(4, 4096, 32), 8
    one, two = (
        simulate(TrainingConfig(model, replace(parallel, data_parallel=kind)), SELENE) for kind in ("torch", "zero2")
    )
    count = max(rank_elements(two.config))
    assert two.memory_bytes["gradients"] == round(2 * count / 8)
    assert [two.memory_bytes[use] for use in ("weights", "optimizer")] == [2 * count, round(12 * count / 8)]
    assert one.memory_bytes["gradients"] == 2 * count
    assert two.traffic["data"] == pytest.approx(2 * count * 7 / 8 * (m + 1))
    assert one.traffic["data"] == pytest.approx(2 * count * 7 / 8 * (1 + 1))
    assert two.phase_times["data_parallel"] >= one.phase_times["data_parallel"]
    assert two.phase_times["forward"] == one.phase_times["forward"]


def test_zero_2_hides_a_reduction_behind_the_backward_pass_of_its_microbatch():
    cost = CostModel(SELENE)
    config = gpt3(d=4, B=192, sharded_optimizer=True, data_parallel="zero2")
    alone = gradient_reduction(cost, gpt3(d=4, B=192, sharded_optimizer=True), 1e9, 0.0)  # after the flush, once
    copies = gradient_copies(cost, config, 1e9)
    for hidden in (0.0, 0.01, 10.0):
        exposed = 48 * max(0.0, alone - copies - hidden)
        assert gradient_reduction(cost, config, 1e9, hidden) == pytest.approx(exposed + copies)


@pytest.mark.parametrize(("every", "chunks"), [(1, 0), (4, 2), (8, 3)])
def test_zero_2_reduces_after_a_round_and_has_two_chunks_gradients_whole_meanwhile(every, chunks):
    """By hand: 16 microbatches on 4 stages in 3 chunks of a layer; rounds longer than p fill all chunks.

    The last rank is the fullest, and of its chunks the one with the output layer is of the two with most.
    """
    sizes = ModelConfig(12, 1024, 16), {"p": 4, "v": 3, "d": 2, "B": 32, "sharded_optimizer": True}
    parallel = ParallelConfig(**sizes[1], data_parallel="zero2", reduce_every=every)
    config, cost = TrainingConfig(sizes[0], parallel), CostModel(SELENE)
    result, parameters = simulate(config, SELENE), max(rank_elements(config))
    rounds = 16 // every
    of_last = rank_elements(config)[-1]
    whole = of_last - (3 - chunks) * (12 * 1024**2 + 13 * 1024) if chunks else 0
    assert result.memory_bytes["gradients"] == 2 * (of_last // 2 + whole)
    assert result.traffic["data"] == pytest.approx(2 * parameters / 2 * (rounds + 1))
    once = TrainingConfig(sizes[0], ParallelConfig(**sizes[1], data_parallel="torch"))
    copies = gradient_copies(cost, config, 1e9)
    alone = gradient_reduction(cost, once, 1e9, 0.0) - copies
    exposed = gradient_reduction(cost, config, 1e9, alone / 10) - copies
    assert exposed == pytest.approx(max(rounds * alone * max(0, 1 - every / 10), alone / 3 if every > 1 else 0))


def test_outputs_that_are_freed_leave_only_messages_on_their_way():
    config = gpt3(B=192, recompute="none")
    kept, freed = (
        simulate(config, replace(SELENE, software=replace(SELENE.software, freed_outputs=on))) for on in (False, True)
    )
    sent = 2 * 2048 * config.model.hidden  # bytes of bsh in fp16
    assert kept.memory_bytes["boundary_buffers"] - freed.memory_bytes["boundary_buffers"] == config.parallel.p * sent
    assert kept.iteration_time == freed.iteration_time


def test_a_sum_in_fp32_by_itself_moves_ten_bytes_a_parameter_where_one_in_16_bits_moves_six():
    narrow, wide = (
        CostModel(replace(SELENE, software=replace(SELENE.software, fp32_accumulation=on))) for on in (False, True)
    )
    works = [cost._accumulated(gpt3(B=192), Work(), 1000, 1) for cost in (narrow, wide)]
    assert [work.traffic_bytes for work in works] == [6000, 10000]
    assert [work.wide_bytes for work in works] == [0, 8000]


def test_what_does_not_fit_says_so():
    whole = TrainingConfig(GPT3, ParallelConfig(t=8, B=1))
    assert not simulate(whole, SELENE).fits
    assert simulate(gpt3(), SELENE).fits


def scored(config, published):
    return simulate(config, SELENE).throughput_per_gpu / (published * 1e12) - 1


def test_table_1_is_predicted():
    errors = []
    for row in PUBLISHED["table_weak_scaling"]["rows"]:
        p, t, b, v, B = (row[key] for key in ("p", "t", "b", "v", "B"))
        parallel = ParallelConfig(p=p, t=t, d=row["gpus"] // (p * t), v=v, b=b, B=B, data_parallel=row["data_parallel"])
        model = ModelConfig(row["layers"], row["hidden"], row["heads"])
        errors.append(scored(TrainingConfig(model, parallel), row["throughput_per_gpu"]))
    assert sum(map(abs, errors)) / 10 <= 0.05
    assert max(map(abs, errors)) <= 0.10


def test_cluster_files_of_ones_own(tmp_path):
    text = cluster_path("selene").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("value = 8\n", "value = 4\n", 1).replace("range = [8, 8]", "range = [4, 16]", 1))
    assert load_cluster(str(mine)).gpus_per_node == 4


def test_distributed_inputs_of_blocks_cost_a_gather_per_block_and_keep_1_over_t():
    whole, distributed = (gpt3(distribute_checkpointed_activations=distribute) for distribute in (False, True))
    before, after = simulate(whole, SELENE), simulate(distributed, SELENE)
    layers, m, t, bsh = 96 // 12, 48, 8, 2048 * 12288
    gather = CostModel(SELENE).gather(whole, Boundary.of(whole).gather)  # of a tensor of the same size
    recomputing = after.phase_times["recompute"] - before.phase_times["recompute"]
    assert recomputing == pytest.approx(layers * m * gather, rel=1e-9)
    sent = after.traffic["tensor"] - before.traffic["tensor"]
    assert sent == SELENE.element_bytes * layers * m * bsh * (t - 1) / t
    kept = [estimate.memory_bytes["stashed_activations"] for estimate in (before, after)]
    assert kept[0] == t * kept[1]
