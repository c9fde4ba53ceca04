"""Strict optimizer semantics: loss, gradients and parameters equal the serial model's, for every way to parallelise.

fp64, three optimizer steps, 1e-9 relative. Cases of one world size run in one set of ranks.
"""

import itertools
import random
from collections import defaultdict
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ptdp_core.engine.optimizer import learning_rate
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.launch.local import launch
from ptdp_core.schedules import MODES
from tests.ptdp_core.engine import jobs, serial, serial_model

TOLERANCE = 1e-9
LAYOUTS = [(p, t, d) for p, t, d in itertools.product((1, 2, 4), repeat=3) if p * t * d <= 8]
EXCHANGES = ("all_gather", "ring", "all_to_all")
PIPELINES = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("interleaved", 3)]


def fixed_grid():
    """Every layout with every schedule and exchange mode; the other choices drawn for each from a fixed seed."""
    rng = random.Random(7)
    cases = []
    for p, t, d in LAYOUTS:
        for schedule, v in PIPELINES if p > 1 else [("1f1b", 1)]:
            for exchange in ("blocking", "overlapped") if p > 1 else ("blocking",):
                for _ in range(3 if p > 1 else 4):
                    cases.append(draw_rest(rng, p=p, t=t, d=d, v=v, schedule=schedule, exchange=exchange))
    rng.shuffle(cases)
    return cases


def draw_rest(rng, **case):
    p, d = case["p"], case["d"]
    b = rng.choice((1, 2))
    m = p * rng.choice((1, 2)) if case["v"] > 1 else rng.choice((1, 2, 3, p))
    return case | {
        "b": b,
        "B": m * b * d,
        "scatter_gather": rng.random() < 0.5,
        "recompute": (recompute := rng.choice(("none", "full"))),
        "distribute_checkpointed_activations": recompute == "full" and case["t"] > 1 and b == 1,
        "checkpoint_layers": rng.choice((1, 2)),
        "data_parallel": rng.choice(("local", "torch")),
        "bucket_mib": rng.choice((0.002, 25.0)),
        "sharded_optimizer": rng.random() < 0.5,
        "dropout": (dropout := rng.choice((0.0, 0.0, 0.1))),
        "attention": rng.choice(("operators", "operators", "sdpa")) if not dropout else "operators",
    }


class References:
    """Serial runs, one per distinct case as the serial model sees it."""

    def __init__(self, folder):
        self.folder, self.paths = folder, {}

    def path(self, case):
        s = jobs.settings_of(case)
        dropout = s.engine.dropout
        b, t = (s.parallel.b, s.parallel.t) if dropout else (s.parallel.B, 1)
        along_sequence = bool(dropout and s.parallel.sequence_parallel)
        key = (s.model, s.parallel.B, b, t, dropout, along_sequence)
        if key not in self.paths:
            trackers = [RNGTracker(jobs.SEED, torch.device("cpu"), rank) for rank in range(t)]
            rates = [learning_rate(step, s.optimizer) for step in range(jobs.STEPS)]
            run = serial.train(
                serial_model.initial(s.model, jobs.SEED),
                partial(serial_model.loss, s.model),
                jobs.batches(s.parallel.B, s.model.seq, s.model.vocab),
                b,
                serial.Dropout(dropout, trackers, along_sequence),
                rates,
                s.optimizer.weight_decay,
                s.optimizer.clip,
            )
            self.paths[key] = str(self.folder / f"{len(self.paths)}.pt")
            torch.save(run, self.paths[key])
        return self.paths[key]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return References(tmp_path_factory.mktemp("serial"))


def check(cases, references, job=jobs.compare_all):
    by_ranks = defaultdict(list)
    for case in cases:
        by_ranks[jobs.settings_of(case).parallel.n].append(case)
    wrong = []
    for ranks, group in sorted(by_ranks.items()):
        work = [(case, references.path(case)) for case in group]
        results = launch(job, ranks, (work,), timeout=120, process_group=ranks > 1)
        for i, case in enumerate(group):
            for rank, result in enumerate(results):
                worst = max(result[i].values())
                if not worst <= TOLERANCE:
                    wrong.append(f"{jobs.merged(case)}: rank {rank} {result[i]}")
    assert not wrong, "\n".join(wrong)


GRID = fixed_grid()
# Half of the grid again, with the attention core recomputed in place of whole layers or nothing.
MODULES = {"recompute": "selective", "recompute_modules": "core_attn,mlp"}
SELECTIVE = [case | {"recompute": "selective", "distribute_checkpointed_activations": False} for case in GRID[::2]]
# What of both is tensor-parallel again, with sequence parallelism.
SEQUENCE_PARALLEL = [
    case | {"sequence_parallel": True, "distribute_checkpointed_activations": False}
    for case in (*GRID, *SELECTIVE[::4])
    if case["t"] > 1
]
PARTS = 72  # the first is in the default run, with a few of the others


def test_the_grid_is_large_and_holds_the_edges():
    assert len(GRID) >= 200
    assert {c["v"] for c in GRID} == {1, 2, 3}
    m = [(c["B"] // (c["b"] * c["d"]), c["p"]) for c in GRID]
    assert any(m < p for m, p in m)
    assert any(m == p and c["v"] > 1 for (m, p), c in zip(m, GRID, strict=True))
    for field in (
        "scatter_gather",
        "recompute",
        "data_parallel",
        "sharded_optimizer",
        "exchange",
        "dropout",
        "attention",
    ):
        assert len({c[field] for c in GRID}) == 2
    assert len(SELECTIVE) >= 100
    assert {(c["attention"], c["dropout"] > 0) for c in SELECTIVE} >= {("operators", True), ("operators", False)}
    assert len(SEQUENCE_PARALLEL) >= 100
    for field in ("t", "scatter_gather", "data_parallel", "sharded_optimizer", "exchange", "dropout", "attention"):
        assert len({c[field] for c in SEQUENCE_PARALLEL}) == 2
    assert {c["recompute"] for c in SEQUENCE_PARALLEL} == {"full", "selective", "none"}


def test_parity(references):
    check([*GRID[::PARTS], *SELECTIVE[:: 3 * PARTS], *SEQUENCE_PARALLEL[:: 2 * PARTS]], references)


def test_parity_with_uneven_stages(references):
    check(
        [
            {"p": 3, "t": 2, "d": 1, "B": 3, "layers": 5, "recompute": "full", "scatter_gather": True},
            {"p": 3, "t": 1, "d": 2, "B": 6, "layers": 4, "schedule": "zb-h1", "data_parallel": "torch"},
            {"p": 2, "v": 2, "t": 2, "d": 1, "B": 2, "layers": 5, "recompute": "none"},
            {"p": 2, "v": 2, "t": 1, "d": 2, "B": 4, "layers": 5, "recompute": "none", "sharded_optimizer": True},
        ],
        references,
    )


def test_parity_with_a_layout(references):
    """Chunks without a layer at the ends and between, on every way to pass a tensor on; ends of the model alone."""
    looped = {"p": 2, "v": 2, "layers": 3}
    wave = looped | {"schedule": "zb-v", "t": 1}
    check(
        [
            {"p": 3, "t": 1, "d": 1, "B": 3, "layers": 4, "pipeline_layout": "E|t*4|L", "schedule": "zb-h1"},
            {"p": 3, "t": 1, "d": 2, "B": 6, "layers": 4, "pipeline_layout": "E|t*3|tL", "data_parallel": "torch"},
            looped | {"t": 2, "d": 1, "B": 2, "pipeline_layout": "E||t|ttL", "recompute": "full"},
            looped | {"t": 2, "d": 1, "B": 2, "pipeline_layout": "E|ttt||L", "sequence_parallel": True},
            looped | {"t": 2, "d": 1, "B": 4, "pipeline_layout": "E|t|tt|L", "recompute": "selective", "dropout": 0.1},
            looped | {"t": 1, "d": 2, "B": 4, "pipeline_layout": "Et|tt||L", "sharded_optimizer": True},
            wave | {"d": 1, "B": 4, "pipeline_layout": "Et||t|tL"},
            overlapped(
                wave
                | {"d": 2, "B": 4, "pipeline_layout": "E|ttt||L", "data_parallel": "torch", "sharded_optimizer": True}
            ),
            wave | {"d": 1, "B": 2, "pipeline_layout": "E||tt|tL", "exchange": "overlapped", "tied_embeddings": False},
        ],
        references,
    )


SIZES, FURTHER = {"hidden": 32, "heads": 8}, {name: value for name, (value, _) in serial_model.FURTHER.items()}
LLAMA = SIZES | serial_model.LLAMA
WITH_ONE = [
    SIZES | {name: value} for name, value in (serial_model.LLAMA | FURTHER).items()
]  # in what is otherwise a GPT


def test_parity_of_a_llama(references):
    check(
        [
            {"p": 2, "t": 2, "d": 1, "layers": 3, "B": 2, "attention": "sdpa", "recompute": "selective"} | LLAMA,
            {"p": 2, "t": 2, "d": 1, "v": 2, "B": 4, "b": 2, "sequence_parallel": True} | LLAMA | MODULES,
            {"p": 1, "t": 2, "d": 2, "layers": 2, "B": 4, "sharded_optimizer": True, "dropout": 0.1} | LLAMA,
            {"p": 2, "t": 2, "d": 1, "layers": 2, "B": 2, "sequence_parallel": True} | LLAMA | FURTHER,
        ],
        references,
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_parity_of_more_llamas(part, references):
    """The grid again, as a Llama; split schedules; and each of the fields alone."""
    cases = [case | LLAMA for case in (*GRID, *SEQUENCE_PARALLEL)[part::8]]
    cases += [{"p": 2, "t": 2, "d": 1, "schedule": schedule, "B": 4} | LLAMA for schedule in ("zb-h1", "zb-h2")]
    cases += [{"p": 2, "t": 2, "d": 1, "v": 2, "schedule": "zb-v", "B": 4, "recompute": "selective"} | LLAMA]
    cases += [cases[-1] | MODULES]
    layout = {"p": 2, "t": (1, 2, 4, 2)[part], "d": 1, "B": 4, "sequence_parallel": part == 3, "exchange": "overlapped"}
    cases += [layout | one for one in WITH_ONE]
    check(cases, references)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, PARTS))
def test_parity_of_the_rest(part, references):
    check([*GRID[part::PARTS], *SELECTIVE[part::PARTS], *SEQUENCE_PARALLEL[part::PARTS]], references)


def context_grid():
    """Every layout with context parallelism, with every schedule and exchange of attention."""
    rng = random.Random(11)
    cases = []
    for (p, t, d), c in itertools.product(LAYOUTS, (2, 4)):
        for schedule, v in (*PIPELINES[1:3], ("zb-h1", 1)) if p > 1 else [("1f1b", 1)]:
            for exchange in EXCHANGES if p * t * d * c <= 8 else ():
                case = draw_rest(rng, p=p, t=t, d=d, v=v, schedule=schedule, exchange=rng.choice(MODES))
                case |= {"c": c, "context_exchange": exchange, "seq": 16, "hidden": 32, "heads": 8, "dropout": 0.0}
                case |= rng.choice(({}, LLAMA)) if exchange != "all_to_all" or c * t <= 4 else {}
                if exchange == "ring":
                    case["attention"] = "sdpa"
                if rng.random() < 0.5:
                    case |= {"recompute": "selective", "distribute_checkpointed_activations": False}
                if t > 1 and rng.random() < 0.5:
                    case |= {"sequence_parallel": True, "distribute_checkpointed_activations": False}
                cases.append(case)
    rng.shuffle(cases)
    return cases


CONTEXT = context_grid()


def test_the_grid_of_context_parallelism_holds_everything_with_both_exchanges():
    assert len(CONTEXT) >= 60
    for exchange in EXCHANGES:
        cases = [case for case in CONTEXT if case["context_exchange"] == exchange]
        assert {c["c"] for c in cases} == {2, 4}
        assert {c["recompute"] for c in cases} == {"full", "selective", "none"}
        assert {c["schedule"] for c in cases} == {"1f1b", "interleaved", "zb-h1"}
        for field in ("attention", "data_parallel", "sharded_optimizer", "exchange"):
            assert len({c[field] for c in cases}) == (1 if (exchange, field) == ("ring", "attention") else 2)
        for size in ("p", "t", "d"):
            assert len({c[size] for c in cases}) >= 2
        assert any("kv_heads" in c for c in cases)
        assert any(c.get("sequence_parallel") for c in cases)


def test_parity_with_context_parallelism(references):
    check(CONTEXT[::8], references)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, 8))
def test_parity_with_context_parallelism_of_the_rest(part, references):
    check(CONTEXT[part::8], references)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_parity_with_context_parallelism_and_overlap(part, references):
    """Also on four stages in a V, and with layers that are not evenly divided."""
    context = {"seq": 16, "hidden": 32, "heads": 8, "c": (2, 2, 4, 4)[part], "exchange": "overlapped"}
    context |= {"context_exchange": EXCHANGES[part % 3], "attention": "sdpa"}
    vs = {"p": 2, "v": 2, "d": 1, "B": 4, "schedule": "zb-v", "data_parallel": "torch", "sharded_optimizer": True}
    uneven = {"p": 2, "d": 1, "B": 4, "layers": 5, "pipeline_layout": "Ett|tttL", "recompute": "selective"}
    cases = [overlapped(case) for case in CONTEXT[part::4]]
    cases += [overlapped(context | {"t": 1} | vs), context | {"t": 1} | uneven]
    check(cases, references)


def overlapped(case):
    """A case with everything overlapped and fused that its layout allows."""
    gathers = case["data_parallel"] == "torch" and case["sharded_optimizer"]
    return case | {"overlapped_all_reduce": case["t"] > 1, "overlapped_gather": gathers, "fused_accumulation": True}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_parity_with_overlap(part, references):
    cases = [*GRID[part::PARTS], *SEQUENCE_PARALLEL[part :: 2 * PARTS]]
    check([overlapped(case) for case in cases], references)


@st.composite
def any_case(draw):
    p, t, d = draw(st.sampled_from(LAYOUTS))
    schedule, v = draw(st.sampled_from(PIPELINES)) if p > 1 else ("1f1b", 1)
    rng = random.Random(draw(st.integers(0, 10**6)))
    exchange = draw(st.sampled_from(("blocking", "overlapped")))
    return draw_rest(rng, p=p, t=t, d=d, v=v, schedule=schedule, exchange=exchange)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(case=any_case())
def test_parity_of_any_case(case, references):
    check([case], references)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=any_case())
def test_parity_of_more_cases(case, references):
    check([case], references)
