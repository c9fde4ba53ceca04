"""The search: legal configurations, what is known without executing them, the same best with and without pruning."""

import itertools
from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import definition, exists, names
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import family_least_memory, family_least_time, least_time, schedule_least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.peak_memory import fits, peak_memory
from reproduce.planning import search as searching
from reproduce.planning.cells import (
    FIELDS,
    ON_REQUEST,
    PAPERS_TECHNIQUES,
    SPLIT_SCHEDULES,
    TECHNIQUES,
    cells,
    configurations,
    families,
    recomputations,
)
from reproduce.planning.plan_text import PARAMETERS
from reproduce.planning.search import (
    HEADROOM,
    is_tight,
    least_memory,
    nearest_gpus,
    order,
    ranked,
    search,
    settled_to,
    takeaways,
)
from reproduce.planning.space import (
    TrainingJob,
    beside_the_output,
    context_sizes,
    divisors,
    expert_sizes,
    grids,
    most_layers,
    nearest_batch,
    stage_splits,
    tensor_sizes,
)
from reproduce.planning.time_shares import time_shares
from tests.marks import by_default

CLUSTER = load_cluster()
COSTS = CostModel(CLUSTER)
PER_NODE = CLUSTER.gpus_per_node
# Some of each fit and some do not; pipelines of 1 to 12 ranks, microbatches fewer and more than ranks.
JOBS = [TrainingJob(ModelConfig(12, 8192, 32), 12, 24), TrainingJob(ModelConfig(8, 12288, 64), 32, 16)]
EXPERTS = ModelConfig(
    *(4, 1024, 8, 512), activation="swiglu", bias=False, experts=8, experts_per_token=2, expert_ffn_hidden=512
)
SOME = (*PAPERS_TECHNIQUES, "sequence_parallel", "split", "layouts", "zero1", "zero2")


@pytest.fixture(
    scope="module", params=by_default(JOBS, JOBS[1]), ids=lambda job: f"{job.model.layers}l-{job.n}n-B{job.B}"
)
def job(request):
    return request.param


@pytest.fixture(scope="module")
def everything(job):
    return search(job, CLUSTER, top=5, techniques=SOME, prune=False)


def test_divisors():
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(1) == [1]


def legal(**fields):
    try:
        ParallelConfig(**fields)
    except ValueError:
        return False
    return True


def test_the_legal_configurations_are_all_there_once(job):
    """Against trying every combination of sizes and techniques and keeping those that can be made."""
    expected = set()
    layers = job.model.layers
    stages = [
        (p, v, text)
        for p, v in itertools.product(divisors(job.n), range(1, layers + 3))
        for text in ("", layout_of((0, *[1] * layers, 0)))
        # equal stages; those that would be equal if the model's ends were layers, too; one chunk on each rank
        if layers % (p * v) == 0 or (p > 1 and (layers + 2) % (p * v) == 0) or (v == 1 and p < layers)
        if bool(text) == (p * v > layers)
    ]
    stages += [(p, *each) for p in divisors(job.n) for each in stage_splits(job.model, p) if each.pipeline_layout]
    for (p, v, text), t, b in itertools.product(dict.fromkeys(stages), tensor_sizes(job, PER_NODE), divisors(job.B)):
        if job.n % (p * t):
            continue
        d = job.n // (p * t)
        kind = "torch" if p == 1 else "local"
        states = [(kind, False, 0), *([(kind, True, 0), ("zero2", True, 0)] if d > 1 else [])]
        if p == 1 and d > 1:
            states += [
                ("zero3", False, 0),
                *([("zero3", False, 8 // t)] if t < 8 < t * d and d % (8 // t) == 0 else []),
            ]
        for schedule, recomputed, sequence, (reduced, sharded, shards) in itertools.product(
            ["", *(SPLIT_SCHEDULES if p > 1 else ())],
            recomputations(job.model, TECHNIQUES),
            (False, True) if t > 1 else (False,),
            states,
        ):
            if text and v > 1 and schedule:  # layouts are for the looped placement
                continue
            fields = {"p": p, "t": t, "d": d, "v": v, "b": b, "B": job.B, "schedule": schedule, "pipeline_layout": text}
            fields |= {"attention": "sdpa", "sequence_parallel": sequence, "data_parallel": reduced} | recomputed
            fields["sharded_optimizer"] = sharded
            if legal(**fields, zero3_shards=shards):
                expected.add(TrainingConfig(job.model, ParallelConfig(**fields, zero3_shards=shards)))
    result = list(configurations(job, PER_NODE, (*TECHNIQUES, "fsdp")))
    assert len(result) == len(set(result)) == sum(map(len, cells(job, PER_NODE, (*TECHNIQUES, "fsdp"))))
    assert set(result) == expected
    assert all(config.parallel.n == job.n for config in result)


@pytest.mark.parametrize("model", [ModelConfig(4, 1024, 8, 512), replace(EXPERTS, seq=8192)], ids=["gpt", "experts"])
def test_a_plan_shows_the_fields_that_its_techniques_choose(model):
    """`FIELDS` says which, and nothing else differs between two configurations of a search but context's exchange."""
    every, job = (*TECHNIQUES, *ON_REQUEST, "fsdp"), TrainingJob(model, 16, 16)
    assert FIELDS.keys() == {*TECHNIQUES, *ON_REQUEST}
    some = itertools.islice(families(job, 8, every), 0, None, 17)
    tried = [config.parallel for config in itertools.chain.from_iterable(some)]
    names = ParallelConfig.__dataclass_fields__
    different = {name for name in names if len({getattr(parallel, name) for parallel in tried}) > 1}
    assert different - {"context_exchange"} <= {*PARAMETERS}
    surely = ("interleaving", "modules", "split", "zero2", *(("context", "experts") if model.experts else ()))
    assert different >= {name for technique in surely for name in FIELDS[technique]} - {"experts"}


def test_long_sequences_are_shared_by_context_ranks_with_fused_attention():
    assert context_sizes(4096, 16) == [1]
    assert context_sizes(8192, 16) == [1, 2]
    assert context_sizes(1 << 20, 16) == [1, 2, 4, 8, 16]
    assert context_sizes(32768, 6) == [1, 2]
    long = TrainingJob(ModelConfig(4, 1024, 8, 32768), 16, 8)
    shared = [config.parallel for config in configurations(long, PER_NODE) if config.parallel.c > 1]
    assert {parallel.c for parallel in shared} == {2, 4, 8}
    assert all(parallel.n == 16 and parallel.attention == "sdpa" for parallel in shared)
    assert all(config.parallel.c == 1 for config in configurations(long, PER_NODE, PAPERS_TECHNIQUES))


def test_experts_are_shared_in_every_way_that_can_be_made():
    """Against trying every e and etp; the paper's runs had none to share."""
    mixture = TrainingJob(EXPERTS, 8, 8)
    of_e = list(configurations(mixture, PER_NODE, (*PAPERS_TECHNIQUES, "experts", "sequence_parallel", "zero1")))
    assert len(of_e) == len(set(of_e))
    expected = set()
    for config in of_e:
        parallel = config.parallel
        for e, etp in itertools.product(range(1, 9), {0, 1} if parallel.t > 1 else {0}):
            try:
                expected.add(TrainingConfig(mixture.model, replace(parallel, e=e, etp=etp)))
            except ValueError:
                continue
    assert set(of_e) == expected
    assert {config.parallel.e for config in of_e} == {1, 2, 4, 8}
    assert {config.parallel.e for config in configurations(mixture, PER_NODE, PAPERS_TECHNIQUES)} == {1}
    assert expert_sizes(replace(EXPERTS, experts=12), 8, 2, True) == [
        *({"e": e} for e in (1, 2, 4)),
        *({"e": e, "etp": 1} for e in (1, 2, 4)),
    ]


def test_shares_of_the_time_of_experts_add_up_and_pruning_changes_nothing():
    mixture = TrainingJob(EXPERTS, 8, 8)
    unpruned = search(mixture, CLUSTER, 5, ("experts", *SOME), prune=False)
    assert search(mixture, CLUSTER, 5, ("experts", *SOME)).ranked[:5] == unpruned.ranked[:5]
    for estimate in unpruned.ranked[::50]:
        shares, parallel = time_shares(estimate, CLUSTER), estimate.config.parallel
        assert sum(shares.values()) == pytest.approx(estimate.iteration_time)
        assert (shares["expert-parallel communication"] > 0) == (parallel.e > 1)
        assert (shares["tensor-parallel communication"] > 0) == (parallel.t > 1)
        assert shares["computation"] > 0


@pytest.mark.parametrize("field", [("lora_rank", 16), ("optimizer_states", "muon"), ("fused", False)])
def test_pruning_changes_nothing_of_what_every_layout_has(field):
    job, techniques = TrainingJob(ModelConfig(8, 4096, 16), 8, 16, (field,)), (*SOME, "fsdp", "zero3")
    h100 = load_cluster("h100")
    unpruned = search(job, h100, 5, techniques, prune=False)
    assert search(job, h100, 5, techniques).ranked[:5] == unpruned.ranked[:5]
    assert {getattr(estimate.config.parallel, field[0]) for estimate in unpruned.ranked} == {field[1]}
    assert getattr(takeaways(job, h100).chosen.config.parallel, field[0]) == field[1]


def test_adapters_are_not_searched_with_the_zero3_of_the_papers_program_which_has_none():
    job, techniques = TrainingJob(ModelConfig(4, 1024, 8), 4, 8, (("lora_rank", 8),)), (*SOME, "zero3")
    found = search(job, CLUSTER, 1, techniques, prune=False).ranked
    assert "zero3" not in {estimate.config.parallel.data_parallel for estimate in found}
    plain = search(replace(job, fields=()), CLUSTER, 1, techniques, prune=False).ranked
    assert "zero3" in {estimate.config.parallel.data_parallel for estimate in plain}


@pytest.mark.parametrize("head", [0.0, 0.4, 1.2, 2.5])
@pytest.mark.parametrize(("layers", "p"), [(8, 2), (9, 3), (10, 4), (7, 4)])
def test_no_stages_balance_the_output_better(layers, p, head):
    """Against every way to spread the layers over p ranks, with one chunk on each and with two."""
    ways = (way for way in itertools.product(range(layers + 1), repeat=p) if sum(way) == layers)
    least = min(max(*way[:-1], way[-1] + head) for way in ways)
    for v in (1, 2):
        sizes = beside_the_output(layers, p, v, head)
        assert (len(sizes), sum(sizes)) == (p * v, layers)
        assert most_layers(sizes, p, head) == pytest.approx(least)


def test_a_layout_is_found_where_the_output_is_large():
    """Its 131,072 words cost as much as five of the eight layers, and no GPU has room for all of it."""
    job = TrainingJob(ModelConfig(8, 2048, 1, 2048, 131072), 4, 16)
    small = replace(CLUSTER, memory_bytes=13e9)
    (best, *_) = search(job, small, top=1, techniques=(*PAPERS_TECHNIQUES, "layouts", "split", "zero1")).ranked
    assert best.config.parallel.pipeline_layout == "Et*6|t*2L"
    even = replace(best.config, parallel=replace(best.config.parallel, pipeline_layout=""))
    assert simulate(even, small).iteration_time > 1.1 * best.iteration_time


def test_the_papers_techniques_are_those_of_its_runs(job):
    for config in configurations(job, PER_NODE, PAPERS_TECHNIQUES):
        parallel = config.parallel
        assert parallel.schedule in ("1f1b", "interleaved")
        assert parallel.recompute in ("full", "none")
        assert not parallel.sequence_parallel
        assert parallel.attention == "operators"
        assert not parallel.sharded_optimizer
        assert not parallel.pipeline_layout
        assert job.model.layers % (parallel.p * parallel.v) == 0


def test_families_are_bounded_at_once(job):
    for family in families(job, PER_NODE):
        frugal = family.frugal
        least, memory = family_least_time(frugal[0], COSTS), min(family_least_memory(each, COSTS) for each in frugal)
        for config in list(family)[:: max(1, len(family) // 2)]:
            assert memory <= peak_memory(config, COSTS)
            assert least <= least_time(config, COSTS) * (1 + 1e-9)
        for each in family.by_schedule():
            least = schedule_least_time(each.frugal[0], COSTS)
            assert all(least <= least_time(config, COSTS) for config in each)


def test_cells_are_bounded_at_once(job):
    """With experts, FP8 and all that may be recomputed; none of those whose layers do not fit would fit."""
    h100 = load_cluster("h100")
    costs = CostModel(h100)
    for asked in (job, TrainingJob(EXPERTS, 16, 16)):
        for cell in list(cells(asked, 8, (*TECHNIQUES, "mxfp8", "fsdp")))[::7]:
            for recomputed in cell.recomputed:
                least = searching.cell_least_time(cell, cell.recomputing(recomputed), costs)
                assert searching.cell_least_time(cell, cell.example, costs) <= least
                for family in list(cell.families(recomputed))[::5]:
                    assert least <= family_least_time(family.frugal[0], costs) * (1 + 1e-9)
                    full = searching.cell_is_full(cell, costs)
                    assert not full or all(not fits(config, costs, h100) for config in family)
                    for each in family.by_schedule():
                        if searching.first_rank_is_full(each, costs):
                            assert not any(fits(config, costs, h100) for config in each)


def test_tensor_groups_fill_nodes_evenly_and_span_at_most_two():
    assert tensor_sizes(TrainingJob(ModelConfig(4, 96 * 64, 96), 96, 8), 8) == [1, 2, 4, 8, 16]
    assert tensor_sizes(TrainingJob(ModelConfig(4, 96 * 64, 96), 36, 8), 8) == [1, 2, 4]


def test_memory_is_known_without_executing(everything):
    for estimate in everything.ranked:
        assert peak_memory(estimate.config, COSTS) == estimate.peak_memory
        assert estimate.fits


def test_what_is_left_out_for_its_memory_does_not_fit(job):
    large = [config for config in configurations(job, PER_NODE, SOME) if not fits(config, COSTS, CLUSTER)]
    assert not any(simulate(config, CLUSTER).fits for config in large[:: max(1, len(large) // 20)])


def test_the_least_time_is_a_bound_and_a_close_one(everything):
    ratios = {False: [], True: []}  # by whether passes are split
    for estimate in everything.ranked:
        splits = estimate.config.parallel.schedule in SPLIT_SCHEDULES
        ratios[splits].append(least_time(estimate.config, COSTS) / estimate.iteration_time)
    assert max(map(max, ratios.values())) <= 1
    assert min(ratios[False]) > 0.7
    alone = [
        least_time(estimate.config, COSTS) / estimate.iteration_time
        for estimate in everything.ranked
        if estimate.config.parallel.p == 1
    ]
    assert not alone or min(alone) > 0.99  # without a pipeline nothing waits


@pytest.mark.parametrize("changes", [{"hca_bandwidth": 2e9, "p2p_bandwidth": 1e9}, {"exchange_host_time": 50e-3}])
def test_the_least_time_is_a_bound_where_communication_rules(job, changes):
    slow = replace(CLUSTER, **changes)
    costs = CostModel(slow)
    for config in list(configurations(job, PER_NODE, SOME))[::17]:
        assert least_time(config, costs) <= simulate(config, slow).iteration_time


@pytest.mark.parametrize("headroom", [0.0, HEADROOM, 0.6])
@pytest.mark.parametrize("top", by_default([1, 3, 10, 10_000], 3))
def test_pruning_changes_nothing(job, top, headroom):
    everything = search(job, CLUSTER, top, SOME, prune=False, headroom=headroom)
    pruned = search(job, CLUSTER, top, SOME, headroom=headroom)
    assert pruned.ranked[:top] == everything.ranked[:top]
    for result in (pruned, everything):
        assert result.legal == result.too_large + result.too_long + result.discarded + len(result.ranked)
    assert everything.discarded == 0
    known = {e.config for e in pruned.ranked}
    assert all(e.config in known for e in everything.ranked if e.iteration_time <= pruned.complete_to_s)
    roomy = everything.ranked[: len(everything.ranked) - everything.tight]
    for place, estimate in enumerate(roomy, 1):
        assert pruned.rank(estimate.config) in (place, None)
    assert not any(pruned.discarded and pruned.rank(e.config) for e in everything.ranked[len(roomy) :])


def test_pruning_prunes(job):
    assert search(job, CLUSTER, 1, SOME).discarded > 0


def test_a_rank_is_known_only_up_to_where_the_search_is_complete(job, everything):
    result = search(job, CLUSTER, 2, SOME)
    assert [result.rank(estimate.config) for estimate in result.ranked[:2]] == [1, 2]
    assert result.rank(everything.ranked[-1].config) is None
    assert everything.rank(everything.ranked[-1].config) == len(everything.ranked)


def test_schedules_too_long_to_execute_are_counted(job, monkeypatch):
    monkeypatch.setattr(searching, "MAX_PASSES", 1)
    result = search(job, CLUSTER, 3, SOME)
    assert result.too_long > 0
    assert result.legal == result.too_large + result.too_long + result.discarded + len(result.ranked)


@pytest.mark.parametrize("name", names())
def test_no_schedule_is_too_long_up_to_64_ranks_and_2048_microbatches(name):
    least, most = definition(name).chunks
    for v in {least, min(most or 8, 8)}:
        if exists(name, 64, 2048, v):
            model = ModelConfig(64 * v, 1024, 16)
            parallel = ParallelConfig(p=64, v=v, B=2048, schedule=name)
            assert not searching.is_too_long(TrainingConfig(model, parallel))


@pytest.mark.parametrize("name", [name for name in names() if definition(name).splits])
def test_what_fits_is_decided_by_the_peak_whether_or_not_a_formula_says_so_first(name):
    v = definition(name).chunks[0]
    for t, m, recompute in itertools.product((1, 2, 4, 8), (8, 24), ("full", "none")):
        model = ModelConfig(16 * v, 8192, 64)
        parallel = ParallelConfig(p=4, v=v, t=t, B=m, schedule=name, recompute=recompute)
        config = TrainingConfig(model, parallel)
        assert fits(config, COSTS, CLUSTER) == (peak_memory(config, COSTS) <= CLUSTER.usable_memory)


def test_nothing_legal_and_nothing_that_fits_are_no_errors():
    indivisible = TrainingJob(ModelConfig(2, 4096, 1), 64, 3)
    assert search(indivisible, CLUSTER).legal == 0
    assert takeaways(indivisible, CLUSTER).chosen is None
    assert least_memory(indivisible, CLUSTER) is None
    huge = TrainingJob(ModelConfig(8, 65536, 64), 8, 8)
    result = search(huge, CLUSTER)
    assert (result.ranked, result.too_large) == ((), result.legal)
    assert not any(size.fits for size in takeaways(huge, CLUSTER).sizes)


def test_the_nearest_batch_is_legal_and_nearest():
    job = TrainingJob(ModelConfig(2, 4096, 2), 64, 17)
    sizes = {d for *_, d in grids(job, PER_NODE)}
    near = nearest_batch(job, PER_NODE)
    assert any(configurations(replace(job, B=near), PER_NODE))
    assert not any(batch % d == 0 for batch in range(17 - abs(near - 17) + 1, near) for d in sizes)


@pytest.mark.parametrize(("n", "B"), [(8, 24), (13, 24)])
def test_the_nearest_gpus_are_enough_and_nearest(n, B):
    job = TrainingJob(ModelConfig(24, 12288, 96), n, B)

    def possible(gpus):
        some = (config for config in configurations(replace(job, n=gpus), PER_NODE) if config.parallel.b == 1)
        return any(fits(config, COSTS, CLUSTER) for config in some if not searching.is_too_long(config))

    near = nearest_gpus(job, CLUSTER)
    assert possible(near)
    assert not any(possible(gpus) for gpus in range(max(1, n - abs(near - n) + 1), n + abs(near - n)) if gpus != near)


@pytest.mark.parametrize(("n", "B"), [(64, 128), (512, 512)])
def test_the_takeaways_take_the_smallest_model_parallel_size(n, B):
    job = TrainingJob(ModelConfig(24, 8192, 64), n, B)
    result = takeaways(job, CLUSTER)
    assert [size.fits for size in result.sizes] == [False] * (len(result.sizes) - 1) + [True]
    products = [size.t * size.p for size in result.sizes]
    assert products == sorted(products)
    assert products[0] == 1
    plain = [c.parallel for c in configurations(job, PER_NODE, PAPERS_TECHNIQUES) if fits(c, COSTS, CLUSTER)]
    plain = [
        c for c in plain if c.v == 1 and c.recompute == "full" and (c.t == PER_NODE or (c.p == 1 and c.t < PER_NODE))
    ]
    assert min(c.t * c.p for c in plain) == products[-1]
    for size in result.sizes:  # Takeaway 1: no pipeline before a node is full
        assert size.p == 1 or size.t == PER_NODE
    parallel = result.chosen.config.parallel
    assert (parallel.t, parallel.p) == (result.sizes[-1].t, result.sizes[-1].p)
    assert (parallel.v, parallel.recompute) == (1, "full")
    tried = [estimate.config.parallel.b for estimate in result.microbatches]
    assert tried == sorted(set(tried))
    assert result.chosen.iteration_time == min(estimate.iteration_time for estimate in result.microbatches)


def test_shares_of_the_time_add_up(everything):
    for estimate in everything.ranked[::5]:
        shares = time_shares(estimate, CLUSTER)
        assert sum(shares.values()) == pytest.approx(estimate.iteration_time)
        assert (shares["tensor-parallel communication"] > 0) == (estimate.config.parallel.t > 1)
        assert (shares["recomputation"] > 0) == (estimate.config.parallel.recompute != "none")
        assert shares["computation"] > 0


def test_the_share_of_tensor_parallelism_is_what_it_would_cost_nothing_without(everything):
    """With links that take no time, the passes are shorter by it; where the host is no limit."""
    links = [name for name in vars(CLUSTER) if name.startswith("nvlink_bandwidth") or name == "tensor_hca_bandwidth"]
    delays = [name for name in vars(CLUSTER) if name.startswith("nvlink_latency")]
    delays += ["network_latency", "tree_hop_latency"]
    device = replace(CLUSTER, host_per_call=0.0)
    free = replace(device, **dict.fromkeys(links, 1e30), **dict.fromkeys(delays, 1e-30))
    passes = ("forward", "recompute", "backward", "embedding_and_logits")
    for config in (result.config for result in everything.ranked[::5]):
        estimate, without = simulate(config, device), simulate(config, free).phase_times
        cost = sum(estimate.phase_times[name] - without[name] for name in passes)
        assert time_shares(estimate, device)["tensor-parallel communication"] == pytest.approx(cost, rel=1e-6, abs=1e-9)


def test_equal_times_are_ordered_by_memory(everything):
    first = everything.ranked[0]
    assert order(replace(first, peak_memory=1)) < order(first)


@pytest.mark.parametrize(
    ("times_and_free", "expected"),
    [
        ([(1.00, 0.01), (1.01, 0.30), (1.50, 0.20)], [1, 2, 0]),  # the fastest is tight: it comes last
        ([(1.00, 0.15), (1.019, 0.45)], [1, 0]),  # a near-tie with more room
        ([(1.00, 0.15), (1.021, 0.45)], [0, 1]),  # slower than that
        ([(1.00, 0.41), (1.01, 0.49)], [0, 1]),  # as many tenths free: the faster one
        ([(1.00, 0.15), (1.015, 0.12), (1.03, 0.45)], [0, 1, 2]),  # near-ties of the fastest, not of one another
        ([(1.00, 0.05), (1.01, 0.01), (1.50, 0.09)], [0, 1, 2]),  # all tight: by time as well
    ],
)
def test_the_ranking_is_by_room_then_time_then_more_room_among_near_ties(everything, times_and_free, expected):
    estimates = [
        replace(everything.ranked[0], iteration_time=time, peak_memory=(1 - free) * CLUSTER.usable_memory)
        for time, free in times_and_free
    ]
    assert [estimates.index(estimate) for estimate in ranked(estimates, CLUSTER)] == expected


@pytest.mark.parametrize(
    ("times", "top", "expected"),
    [
        ([1.0, 1.5], 1, 1.02),
        ([1.0, 1.01, 1.5], 2, 1.02),
        ([1.0, 1.01, 1.5, 2.0], 3, 1.53),
        ([1.0], 2, float("inf")),
        ([], 1, float("inf")),
    ],
)
def test_the_best_depend_on_all_up_to_the_end_of_the_last_ones_near_ties(times, top, expected):
    assert settled_to(times, top) == pytest.approx(expected)


def test_what_leaves_room_is_first_and_what_does_not_is_counted(everything):
    tight = [is_tight(estimate, CLUSTER, HEADROOM) for estimate in everything.ranked]
    assert tight == sorted(tight)
    assert everything.tight == sum(tight) > 0


def test_jobs_are_checked():
    with pytest.raises(ValueError, match="n=0 is not a positive whole number"):
        TrainingJob(JOBS[0].model, 0, 8)


def test_progress_is_told(job):
    steps = []
    result = search(job, CLUSTER, 2, SOME, on_step=steps.append)
    assert steps == list(range(1, len(result.ranked) + 1))
