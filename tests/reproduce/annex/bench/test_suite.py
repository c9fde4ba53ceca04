"""Every benchmark measures what it says: a few points of each at tiny sizes, and the amounts their rates stand on."""

import pkgutil
from dataclasses import replace
from itertools import islice

import pytest
import torch

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY
from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, rate
from benchmarks.harness.ranks import run_ranks
from benchmarks.harness.timing import Samples
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.formulas import flops_per_iteration, logit_flops
from reproduce.annex import bench as suite
from reproduce.annex.bench import benchmark_run, collectives, gemm, layer, memory, p2p, train_step
from reproduce.annex.bench.gpu_archive import SEALED
from reproduce.annex.bench.table import table
from results.records import Metric, read_record
from results.records.errors import UnavailableError
from tests.marks import by_default
from tests.points import made

TINY = Setup("cpu", quick=True, samples=1)
# How many points of each are taken: all that one start of ranks gives. The slow test takes all.
POINTS = {
    "gemm": 9,
    "memory": 5,
    "layer": 2,
    "p2p": 12,
    "collectives": 15,
    "pipeline_step": 1,
    "optimizer_step": 1,
    "checkpoint": 2,
    "gpu_step": 2,
    "data_loading": 4,
    "simulator_rate": 4,
    "startup": 1,
}


def checked(name, points):
    """The points, after a check of what every benchmark must give."""
    points = list(points)
    assert points
    for point in points:
        assert (point.status, point.reason) == ("ok", None), point.key
        shown = [column for column in BENCHMARKS[name].columns if column in point.metrics]
        assert shown, f"{point.key} has none of the columns of the table"
        for metric in point.metrics.values():
            assert metric.value > 0
            assert (metric.origin == "measured") == bool(metric.samples)
    assert len({point.key for point in points}) == len(points)
    return points


LONG = {"collectives", "layer", "simulator_rate", "gpu_step", "p2p"}


@pytest.mark.parametrize("name", by_default(POINTS, *POINTS.keys() - LONG))
def test_points(name):
    points = islice(benchmark_run.load(BENCHMARKS[name]).points(TINY), POINTS[name])
    assert len(checked(name, points)) == POINTS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "fused_kernels"])
def test_all_points(name):
    checked(name, benchmark_run.load(BENCHMARKS[name]).points(TINY))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [name for name, benchmark in BENCHMARKS.items() if benchmark.uses_device])
def test_all_points_on_a_gpu(name):
    for point in benchmark_run.load(BENCHMARKS[name]).points(Setup("cuda", quick=True, samples=2)):
        assert point.status in ("ok", "skipped"), point.reason
        assert point.status == "ok" or "needs one GPU per rank" in point.reason or "needs" in point.reason


def test_the_registry_names_every_module_of_the_suite():
    modules = {module.name for module in pkgutil.iter_modules(suite.__path__)}
    helpers = {"fused_kernels_cases", "fused_step", "gpu_cases", "simulator_rate_peer", "train_step_peers"}
    helpers |= {"benchmark_figures", "command_bench", "gpu_archive", "gpu_session", "benchmark_run", "table"}
    assert modules - helpers == set(BENCHMARKS)
    for benchmark in BENCHMARKS.values():
        notes = [note.format(**vars(benchmark_run.load(benchmark))) for note in benchmark.notes]
        assert notes
        assert all(note.endswith(".") for note in notes)


@pytest.mark.parametrize(
    ("name", "parts"),
    by_default([("serial", 1), ("data", 2), ("pipeline", 2), ("tensor", 2), ("zb-v", 2)], ("serial", 1), ("zb-v", 2)),
)
def test_the_engine_runs_beside_what_it_is_compared_with(name, parts):
    def chosen(c):
        return c.kernels == "reference" and name in (c.name, c.parallel.schedule)

    comparison = next(c for c in train_step.comparisons() if chosen(c))
    try:
        train_step.require_peer(comparison, "cpu")
    except UnavailableError as error:
        pytest.skip(str(error))
    times = run_ranks(train_step.measure_here, parts, (comparison, TINY), "cpu")
    assert [set(rank) for rank in times] == [{"engine", "other", "canary"}] * parts
    assert len({rank["engine"].seconds for rank in times}) == 1  # the slowest rank's, on all


def test_products_of_a_layer_are_its_flop():
    model = ModelConfig(layers=1, hidden=64, heads=4, seq=32, vocab=256)
    shapes = gemm.layer_shapes(s=32, b=2, h=64, heads=4)
    assert sum(shape.flop for shape in shapes) == layer.forward_flop(model, ParallelConfig(b=2, B=2))
    assert sum(shape.flop for shape in gemm.layer_shapes(32, 2, 64, 4, t=2)) * 2 == sum(s.flop for s in shapes)


def test_four_forward_passes_and_the_logits_are_the_papers_flop():
    model = ModelConfig(layers=1, hidden=64, heads=4, seq=32, vocab=256)
    passes = 4 * layer.forward_flop(model, ParallelConfig(b=2, B=2))
    assert passes + logit_flops(model, 2) == flops_per_iteration(model, 2)


def test_bus_bytes_of_a_ring():
    assert collectives.bus_bytes("all_reduce", 800, 4) == 1200
    assert collectives.bus_bytes("all_gather", 800, 4) == collectives.bus_bytes("reduce_scatter", 800, 4) == 600


def test_sizes_that_do_not_split_are_refused_before_a_rank_starts():
    with pytest.raises(
        ValueError, match=r"size=10 does not split over 2 ranks; needs a multiple of 8 bytes; try size=8"
    ):
        collectives.measure(2, [10])


def test_products_are_right_and_in_the_type_asked_for(monkeypatch):
    products = []
    monkeypatch.setattr(gemm, "time_it", lambda call, *_, **__: products.append(call()))
    gemm.measure(3, 5, 7, "bf16", batch=2)
    assert (products[0].shape, products[0].dtype) == ((2, 3, 5), torch.bfloat16)


def test_the_gap_is_that_of_one_kernel(monkeypatch):
    monkeypatch.setattr(memory, "measure", lambda *_, **__: Samples((2.0,)))
    assert memory.kernel_gap().seconds == (2.0 / memory.CHAIN,)


def test_both_ends_of_the_wire_see_every_size():
    times = p2p.measure([64, 4096], samples=2)
    assert set(times) == {(kind, size) for kind in p2p.KINDS for size in (64, 4096)}


def test_a_rate_is_the_amount_over_each_time():
    metric = rate(6.0, Samples((1.0, 2.0, 3.0)), "B/s")
    assert (metric.value, metric.samples, metric.origin) == (3.0, (6.0, 3.0, 2.0), "measured")


def raising(error):
    def measure():
        raise error

    return measure


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (UnavailableError("needs two"), "skipped", "needs two"),
        (torch.OutOfMemoryError("big"), "oom", "the device has too little memory for this size"),
        (RuntimeError("broken\nTraceback"), "failed", "broken"),
        (RuntimeError("\nbroken"), "failed", "broken"),
        (RuntimeError(""), "failed", "RuntimeError"),
    ],
)
def test_a_point_that_cannot_be_had_says_why(error, status, reason):
    point = attempted(TINY, "series", "label", {"x": 1}, raising(error))
    assert (point.status, point.reason, dict(point.metrics)) == (status, reason, {})


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_fits_the_terminal_with_all_its_columns(width):
    units = {"time": "s", "other_time": "s", "tokens": "tokens/s"}
    names = BENCHMARKS["train_step"].columns
    metrics = {name: Metric(0.975, units.get(name, "1"), "measured", (0.975,)) for name in names}
    longest = max((f"{c.name}/{c.label}" for c in train_step.comparisons()), key=len)
    points = (made(longest, metrics), *(made(f"{CANARY}/{n}", metrics, series=CANARY) for n in ("before", "after")))
    about = {"id": "train_step", "fidelity": "measured", "notes": ("a word " * 60,)}
    record = replace(read_record(SEALED), points=points, **about)
    lines = table(record, width).splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    headings = {word for name in (*names, "fastest", "90% below") for word in name.replace("_", " ").split()}
    assert headings <= set(words)
    assert sum("0.975" in line for line in lines) == (1 if width == 200 else 2)


def test_ranks_without_gpus_are_skipped(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UnavailableError, match="ranks=2 on 1 GPU; needs one GPU per rank"):
        run_ranks(p2p.measure_here, 2, (), "cuda")


def test_what_several_points_share_is_measured_once_and_fails_once():
    calls = []
    once = Once(lambda: calls.append(1) or "found")
    assert (once(), once(), calls) == ("found", "found", [1])
    failing = Once(lambda: calls.append(2) or 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing()
    assert calls == [1, 2]
