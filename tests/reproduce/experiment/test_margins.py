"""Simulated values with their intervals, and claims judged at the ends of these."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from reproduce.experiment import alternatives, catalog, margins
from reproduce.experiment.alternatives import with_margins
from reproduce.experiment.bounded import PUBLISHED, Bounded
from reproduce.experiment.claims import Claim, holds_if
from reproduce.experiment.judging import judge
from reproduce.experiment.margins import Margin, Margins
from reproduce.experiment.results import Read, Results
from reproduce.running import runner
from reproduce.running.fidelities import evaluator
from results.records import Interval, Metric, PaperValue
from tests.points import made

MARGINS = Margins(
    throughput=Margin(1.10, 0.9, 100, 0.9, "throughputs"),
    ratio=Margin(1.05, 0.9, 100, 0.9, "ratios"),
    zero3=Margin(2.0, 0.8, 6, None, "zero3"),
    memory=Margin(1.20, 0.9, 20, None, "memory"),
)

GPU = SimpleNamespace(usable_memory=80.0)


def point(series, x, throughput, memory=40.0, status="ok", **parameters):
    metrics = {
        "throughput_per_gpu": Metric(throughput, "FLOP/s", "simulated"),
        "iteration_time": Metric(1 / throughput, "s", "simulated"),
        "bubble_fraction": Metric(0.5, "1", "simulated"),
        "tensor_traffic": Metric(5.0, "B", "simulated"),
        "peak_memory": Metric(memory, "B", "simulated"),
    }
    kept = metrics if status == "ok" else {"peak_memory": metrics["peak_memory"]}
    return made(f"{series}_{x}", kept, status, series=series, label=f"x={x}", reason="too large", x=x, **parameters)


def verdict(condition, *points, fidelity="simulated", known=MARGINS):
    """How a claim is judged whose predicate on results is `condition`."""
    results = with_margins(Results(points, "simulated"), known, lambda point: GPU)
    claim = Claim("c", "Sentence.", "Section 1", fidelity, None, lambda r: holds_if(condition(r), "because"))
    return judge(claim, results)


def speed(results, key):
    return results.value(key, "throughput_per_gpu")


def test_intervals_of_what_has_a_margin():
    metrics = MARGINS.applied(point("a", 1, 11.0, 60.0)).metrics
    assert vars(metrics["throughput_per_gpu"].interval) == pytest.approx({"low": 10, "high": 12.1, "coverage": 0.9})
    assert vars(metrics["iteration_time"].interval) == pytest.approx({"low": 0.1 / 1.21, "high": 0.1, "coverage": 0.9})
    assert metrics["peak_memory"].interval == Interval(50, 72, 0.9)
    assert metrics["bubble_fraction"].interval is None
    wide = MARGINS.applied(point("a", 1, 11.0, data_parallel="zero3")).metrics["throughput_per_gpu"].interval
    assert (wide.low, wide.high, wide.coverage) == (5.5, 22, 0.8)


def test_a_point_on_another_cluster_has_that_one_s_margin():
    known = margins.read("h100").throughput.factor
    metrics = MARGINS.applied(point("a", 1, 11.0, cluster="h100")).metrics
    assert metrics["throughput_per_gpu"].interval == Interval(11 / known, 11 * known, 0.9)
    assert MARGINS.applied(point("a", 1, 11.0, cluster="h200")).metrics["throughput_per_gpu"].interval is None


def widest():
    """The widest factor of a throughput on any cluster whose predictions were scored."""
    return max(margins.read(cluster).throughput.factor for cluster in margins.scored())


@pytest.mark.parametrize(("cluster", "factor"), [("h100", margins.read("h100").throughput.factor), ("gb200", widest())])
def test_claims_move_a_point_by_its_own_cluster_s_margin_or_else_by_the_widest(cluster, factor):
    here, there = point("a", 1, 100.0), point("b", 1, 100.0, cluster=cluster)
    results = with_margins(Results((here, there), "simulated"), MARGINS, lambda point: GPU)
    faster = next(results.moved(results, Read({"throughput_per_gpu"}, set(), {"a_1"}))).moved_by(1.0)
    assert speed(faster, "a_1") == pytest.approx(100 * MARGINS.throughput.factor)
    assert speed(faster, "b_1") == pytest.approx(100 * factor)


@pytest.mark.parametrize("of", ["value", "ratio"])
def test_a_claim_on_experts_is_judged_by_what_runs_with_experts_are_off(of):
    """Of programs that are not named, simulated as their clusters': times are up to a factor of 1.55 off."""
    judged = margins.for_judging("h100")
    assert judged.factor("throughput_per_gpu", of, {"experts": 8}) == pytest.approx(1.547, rel=1e-3)
    assert judged.factor("throughput_per_gpu", of, {}) == pytest.approx(1.160, rel=1e-3)
    assert judged.factor("tensor_traffic", of, {"experts": 8}) == judged.factor("tensor_traffic", of, {})


@pytest.mark.parametrize("axis", [{"c": 2}, {"experts": 8}])
def test_context_and_experts_have_none(axis):
    assert MARGINS.applied(point("a", 1, 11.0, **axis)).metrics["throughput_per_gpu"].interval is None


@pytest.mark.parametrize("cluster", ["h100", "b200"])
def test_context_has_a_margin_where_runs_with_it_test_one(cluster):
    known = margins.read(cluster)
    assert known.context.n != known.throughput.n
    metrics = known.applied(point("a", 1, 11.0, c=2)).metrics
    assert metrics["throughput_per_gpu"].interval == known.context.interval(11.0)
    assert metrics["peak_memory"].interval is None
    assert known.applied(point("a", 1, 11.0, c=2, experts=8)).metrics["throughput_per_gpu"].interval is None


def test_numbers_that_are_not_simulated_have_none():
    derived = replace(point("a", 1, 11.0), metrics={"throughput_per_gpu": Metric(1.0, "FLOP/s", "derived")})
    assert MARGINS.applied(derived) == derived


def test_only_scored_clusters_have_margins():
    assert all(margins.read(cluster) is not None for cluster in ("selene", "h100", "a100-80"))
    assert margins.read("jean_zay") is None
    assert margins.lines(None) == ["no intervals: the simulator's errors on this cluster are not known"]


@pytest.mark.parametrize(
    ("b", "expected"), [(9.9, "inconclusive"), (10.1, "inconclusive"), (9.4, "holds"), (10.6, "contradicted")]
)
def test_a_comparison_of_series_is_as_sure_as_a_ratio(b, expected):
    def compared(results):
        return all(speed(results, f"a_{x}") > speed(results, f"b_{x}") for x in (1, 2))

    points = [point(name, x, value) for name, value in (("a", 10.0), ("b", b)) for x in (1, 2)]
    assert verdict(compared, *points).verdict == expected


def test_the_least_change_is_told_with_the_margin():
    judged = verdict(lambda r: speed(r, "a_1") > speed(r, "b_1"), point("a", 1, 10.0), point("b", 1, 9.9))
    assert (
        "holds as simulated; the verdict would be another if the throughput of a is 1.0% lower against the rest"
        in judged.explanation
    )
    assert "the simulator may be off by 4.8%; because" in judged.explanation


def test_a_number_is_as_sure_as_a_throughput():
    assert verdict(lambda r: speed(r, "a_1") > 9.2, point("a", 1, 10.0)).verdict == "inconclusive"
    assert verdict(lambda r: speed(r, "a_1") > 9.0, point("a", 1, 10.0)).verdict == "holds"
    assert verdict(lambda r: r.value("a_1", "iteration_time") < 0.109, point("a", 1, 10.0)).verdict == "inconclusive"


def test_a_time_is_as_sure_as_the_throughput():
    """0.1 s, at most 0.11 s with a margin of 10%."""
    assert verdict(lambda r: r.value("a_1", "iteration_time") < 0.1099, point("a", 1, 10.0)).verdict == "inconclusive"
    assert verdict(lambda r: r.value("a_1", "iteration_time") < 0.1101, point("a", 1, 10.0)).verdict == "holds"


def test_a_margin_reads_as_percentages_or_a_wide_one_as_a_factor():
    assert str(MARGINS.memory) == "-16.7% to +20.0%"
    assert str(MARGINS.zero3) == "a factor of 2.0"


@pytest.mark.parametrize(
    ("series", "expected"), [("abcd", "inconclusive"), ("abcde", "inconclusive"), ("abcdef", "holds")]
)
def test_two_series_move_together_where_there_are_at_most_five(series, expected):
    def one_of_two_keeps_up(results):
        a, b, c, d = (speed(results, f"{name}_1") for name in "abcd")
        return max(a, b) > 0.97 * min(c, d)  # the margin of a ratio is 5%

    assert verdict(one_of_two_keeps_up, *(point(name, 1, 10.0) for name in series)).verdict == expected


def test_a_single_point_may_stand_out_of_its_series():
    def rises(results):
        values = list(results.series("a", "throughput_per_gpu", "x").values())
        return values == sorted(values)

    assert verdict(rises, point("a", 1, 10.0), point("a", 2, 10.4), point("a", 3, 11.0)).verdict == "inconclusive"
    assert verdict(rises, point("a", 1, 10.0), point("a", 2, 10.6), point("a", 3, 11.2)).verdict == "holds"


def test_what_has_no_margin_decides_nothing_for_or_against():
    """M5: whether it is a hit or a miss; what is counted is exact, and so is what is derived."""
    points = [point("a", 1, 10.0), point("b", 1, 9.9)]
    for hit in (True, False):
        judged = verdict(lambda r, hit=hit: (r.value("a_1", "bubble_fraction") >= 0.5) is hit, *points)
        assert judged.verdict == "inconclusive"
        assert "nobody knows the simulator's errors on bubble_fraction" in judged.explanation
        counted = verdict(lambda r, hit=hit: (r.value("a_1", "tensor_traffic") >= 5.0) is hit, *points)
        assert (counted.verdict, counted.by) == ("holds" if hit else "contradicted", "counted")
    close = verdict(lambda r: speed(r, "a_1") > speed(r, "b_1"), *points, fidelity="derived")
    assert (close.verdict, close.explanation, close.by) == ("holds", "because", "derived")


def test_a_number_whose_errors_are_unknown_decides_nothing_however_far_it_is_from_a_bound():
    share = replace(point("a", 1, 1.0), metrics={"context_share": Metric(0.045, "1", "simulated")})
    assert verdict(lambda r: r.value("a_1", "context_share") < 0.9, share).verdict == "inconclusive"


def test_a_bubble_has_the_margin_that_the_ranges_of_the_cluster_s_numbers_give():
    ranged = replace(MARGINS, ranged={"bubble_fraction": {"value": 1.1, "ratio": 1.02}})
    for least, expected in ((0.46, "inconclusive"), (0.44, "holds"), (0.54, "inconclusive"), (0.56, "contradicted")):
        judged = verdict(
            lambda r, least=least: r.value("a_1", "bubble_fraction") >= least, point("a", 1, 10.0), known=ranged
        )
        assert judged.verdict == expected, least
    assert MARGINS.applied(point("a", 1, 1.0)).metrics["bubble_fraction"].interval is None


def test_a_window_inside_the_margin_is_found():
    """M1: 0.5% wide, where neither end of the margin of 10% is in it, and the reason names the true distance."""
    judged = verdict(lambda r: 10.300 <= speed(r, "a_1") <= 10.350, point("a", 1, 10.0))
    assert judged.verdict == "inconclusive"
    assert "another if every throughput is 3.0% higher" in judged.explanation
    assert verdict(lambda r: 11.1 <= speed(r, "a_1") <= 11.2, point("a", 1, 10.0)).verdict == "contradicted"


@pytest.mark.parametrize(
    ("name", "value", "up", "down"),
    [
        ("hardware_flops_utilization", 0.5, 0.55, 0.5 / 1.1),
        ("samples_per_gpu_s", 2.0, 2.2, 2 / 1.1),
        ("over_published", 1.0, 1 / 1.1, 1.1),
        ("layer_forward_time", 0.01, 0.01 / 1.1, 0.011),
        ("layer_overhead", 0.2, 1.2 / 1.05 - 1, 1.2 * 1.05 - 1),
    ],
)
def test_a_derived_number_has_the_margin_of_what_it_is_made_of(name, value, up, down):
    """M4: up and down are the number where throughputs are higher by their margin, and lower."""
    metrics = {name: Metric(value, "1", "simulated")}
    one = replace(point("a", 1, 1.0), metrics=metrics)
    low, high = sorted((up, down))
    interval = MARGINS.applied(one).metrics[name].interval
    assert (interval.low, interval.high) == pytest.approx((low, high))
    for bound, expected in ((low * 0.999, "holds"), (low * 1.001, "inconclusive")):
        judged = verdict(lambda r, bound=bound: r.value("a_1", name) > bound, one)
        assert judged.verdict == expected


def test_a_missed_prediction_is_told_by_the_true_distance_and_contradicted_beyond_it():
    """M3: a claim over what the paper prints, on a scored cluster."""

    def judged(printed):
        judge_it = Bounded(("throughput_per_gpu",), {"at_least": 0.99, "at_most": 1.01}, over=PUBLISHED)
        one = replace(point("a", 1, 10.0), paper={"throughput_per_gpu": PaperValue(printed, "FLOP/s", "table", 0.1)})
        results = with_margins(Results((one,), "simulated"), MARGINS, lambda point: GPU)
        return judge(Claim("c", "Sentence.", "Section 1", "simulated", None, judge_it), results)

    near = judged(9.5)
    assert near.verdict == "inconclusive"
    assert "another if every throughput is 4.1% lower" in near.explanation
    assert judged(8.0).verdict == "contradicted"


def test_a_simulation_cannot_contradict_what_its_numbers_were_set_with():
    paper = {"throughput_per_gpu": PaperValue(20.0, "FLOP/s", "plot", 1.0)}
    one = replace(point("a", 1, 10.0), paper=paper)
    results = with_margins(Results((one,), "simulated"), MARGINS, lambda point: GPU, ("gemm_plateau",))

    def judged(condition, metric="throughput_per_gpu"):
        return judge(
            Claim(
                "c", "S.", "Section 1", "simulated", None, lambda r: holds_if(condition(r.value("a_1", metric)), "why")
            ),
            results,
        )

    missed = judged(lambda speed: speed > 20)
    assert (missed.verdict, missed.set_with) == ("inconclusive", ("gemm_plateau",))
    assert "gemm_plateau was set with these numbers" in missed.explanation
    held = judged(lambda speed: speed < 20)
    assert held.verdict == "holds"
    assert "no independent evidence" in held.explanation
    assert judged(lambda peak: peak > 50, "peak_memory").verdict == "contradicted"  # the paper publishes no memory


def test_a_cluster_that_was_never_scored_is_judged_by_its_base_s_margins():
    assert margins.read("a100-80-roce") is None
    assert margins.for_judging("a100-80-roce").throughput == margins.read("a100-80-4hca").throughput
    assert margins.for_judging("a100-80-roce").memory == margins.read("selene").memory
    assert margins.for_judging("jean_zay").throughput.factor <= widest()


@pytest.mark.parametrize(
    ("memory", "status", "expected"),
    [(81.0, "oom", "inconclusive"), (97.0, "oom", "holds"), (79.0, "ok", "inconclusive"), (66.0, "ok", "contradicted")],
)
def test_whether_a_point_fits_is_as_sure_as_its_memory(memory, status, expected, monkeypatch):
    monkeypatch.setattr(alternatives, "_simulated_again", lambda point, cluster, usable: {})
    judged = verdict(lambda r: r.point("a_1").status == "oom", point("a", 1, 10.0, memory, status))
    assert judged.verdict == expected
    assert ("memory is 1.2% lower" in judged.explanation) == (memory == 81.0)


@pytest.mark.parametrize(
    ("b", "expected"), [(45.0, "inconclusive"), (49.0, "holds"), (34.0, "inconclusive"), (33.0, "contradicted")]
)
def test_a_ratio_of_two_memories_is_as_sure_as_a_memory(b, expected):
    """Of series, and of two points of one: 40 against b, with a margin of 20%."""

    def less(one, other):
        return lambda r: r.value(one, "peak_memory") < r.value(other, "peak_memory")

    series = verdict(less("a_1", "b_1"), point("a", 1, 10.0, 40.0), point("b", 1, 10.0, b))
    assert series.verdict == expected
    assert verdict(less("a_1", "a_2"), point("a", 1, 10.0, 40.0), point("a", 2, 10.0, b)).verdict == expected
    if expected == "inconclusive":
        assert "another if the memory of a is" in series.explanation
        assert "against the rest, and the simulator may be off by" in series.explanation


def test_what_fits_inside_the_memory_s_margin_is_simulated():
    """M2: its throughput counts, where a number that is missing would be no other verdict."""
    sizes = {"layers": 24, "hidden": 2048, "heads": 16, "b": 1, "B": 4}
    need = simulate(TrainingConfig.from_plain(sizes), load_cluster("selene"))
    full = replace(point("a", 1, 1.0, need.peak_memory, "oom"), parameters=sizes)
    usable = 0.95 * need.peak_memory
    cluster = replace(load_cluster("selene"), memory_bytes=usable, memory_reserved=0.0, allocator_efficiency=1.0)

    def judged(condition):
        results = with_margins(Results((full, point("b", 1, 1.0)), "simulated"), MARGINS, lambda point: cluster)

        def fastest(r):
            speeds = [speed(r, p.key) for p in r.points if p.status == "ok"]
            return holds_if(condition(max(speeds)), "because")

        return judge(Claim("c", "S.", "Section 1", "simulated", None, fastest), results)

    flipped = judged(lambda best: best < 0.9 * need.throughput_per_gpu)
    assert flipped.verdict == "inconclusive"
    assert "memory is 5" in flipped.explanation
    assert judged(lambda best: best < 1.1 * need.throughput_per_gpu).verdict == "holds"


def test_a_number_that_is_missing_is_no_other_verdict():
    """M2: where memory is larger the point has none."""
    assert verdict(lambda r: speed(r, "a_1") > 5.0, point("a", 1, 10.0, memory=79.0)).verdict == "holds"


def test_what_the_paper_ran_fits():
    ran = replace(point("a", 1, 10.0, 79.0), paper={"throughput_per_gpu": PaperValue(10.0, "FLOP/s", "plot")})
    assert verdict(lambda r: r.point("a_1").status == "ok", ran).verdict == "holds"


@pytest.mark.parametrize(
    ("samples", "expected"),
    [((9.9, 10.0, 10.2), "inconclusive"), ((9.99, 10.0, 10.01), "holds"), (None, "inconclusive")],
)
def test_what_ran_in_emulation_is_as_sure_as_its_samples(samples, expected):
    """Without samples nobody knows; what it sent is counted."""
    sent = Metric(5.0, "B", "emulated")
    clocked = {"iteration_time": Metric(10.0, "s", "emulated", samples), "tensor_traffic": sent}
    results = Results((replace(point("a", 1, 1.0), metrics=clocked),), "emulated")

    def judged(condition):
        claim = Claim("c", "S.", "Section 1", "simulated", None, lambda r: holds_if(condition(r), "because"))
        return judge(claim, results)

    timed = judged(lambda r: r.value("a_1", "iteration_time") < 10.05)
    assert (timed.verdict, timed.by) == (expected, "emulated")
    counted = judged(lambda r: r.value("a_1", "tensor_traffic") < 6)
    assert (counted.verdict, counted.by) == ("holds", "counted")


def test_what_is_simulated_at_a_laptop_s_size_decides_only_what_is_counted():
    artifact = catalog.load("fig_scatter_gather")
    evaluate = evaluator(runner.plan(artifact, Path("none"), "simulated", "laptop"), debug=False)
    results = evaluate.results(tuple(evaluate.evaluate(point) for point in evaluate.order()))
    verdicts = {claim.id: judge(claim, results) for claim in artifact.claims if "laptop" in claim.scales}
    assert verdicts["bytes_reduced_by_t"].verdict == "holds"
    timed = verdicts["communication_intensive"]
    assert timed.verdict == "inconclusive"
    assert "nobody knows the simulator's errors on throughput_per_gpu" in timed.explanation
