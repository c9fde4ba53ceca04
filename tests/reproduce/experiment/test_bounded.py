"""Claims that are data, judged on a few points: what is compared, what a missing value or a miss makes of it."""

from dataclasses import replace
from functools import partial

import pytest

from reproduce.experiment import judging
from reproduce.experiment.bounded import PUBLISHED, Bounded
from reproduce.experiment.claims import Claim
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.results import Alternative, MissingResultError, Results
from results.records import Metric, PaperValue
from tests.points import made

SERIES = ("ours", "theirs", "third")


def results(**values):
    """Points of three series in settings m=8 and m=16: 'ours=(2.0, None)', whose None is out of memory."""
    points, paper = [], {"tokens_per_s": PaperValue(2.0, "tokens/s", "table", quantum=0.1)}
    for series, of_series in values.items():
        for m, value in zip((8, 16), of_series, strict=True):
            metrics = {"peak_memory": Metric(90e9, "B", "simulated")}
            if value is not None:
                metrics["tokens_per_s"] = Metric(value, "tokens/s", "simulated")
            named = {"series": series, "label": f"m={m}", "reason": "does not fit"}
            points.append(made(f"{series}_{m}", metrics, "oom" if value is None else "ok", paper=paper, m=m, **named))
    return Results(tuple(points), "simulated")


def judge(**fields):
    return Bounded(("tokens_per_s",), **{"bounds": {"above": 1}, "of": {"series": "ours"}} | fields)


FASTEST = judge(over={"series": list(SERIES[1:])})


@pytest.mark.parametrize(
    ("ours", "verdict"), [((3.0, 3.0), "holds"), ((3.0, 1.5), "contradicted"), ((1.5, 3.0), "contradicted")]
)
def test_a_list_is_every_one_of_several(ours, verdict):
    judged = FASTEST(results(ours=ours, theirs=(1.0, 1.0), third=(2.0, 2.0)))
    assert judged.verdict == verdict
    assert "ours m=8 over third" in judged.explanation or "ours m=16 over third" in judged.explanation


@pytest.mark.parametrize(("ours", "verdict"), [((3.0, None), "inconclusive"), ((1.5, None), "contradicted")])
def test_every_point_is_wrong_as_soon_as_one_of_those_with_a_value_is(ours, verdict):
    judged = FASTEST(results(ours=ours, theirs=(1.0, 1.0), third=(2.0, 2.0)))
    assert judged.verdict == verdict
    assert judged.explanation.startswith("1 point without a value (point 'ours_16' has no result (oom: does not fit))")


def test_the_largest_may_be_the_one_that_is_missing():
    assert judge(which="largest")(results(ours=(0.5, None))).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("which", "value", "verdict"),
    [
        *(("largest", 1.4, "contradicted"), ("largest", 1.1, "inconclusive"), ("largest", 1.3, "inconclusive")),
        *(("smallest", 1.1, "contradicted"), ("smallest", 1.4, "inconclusive"), ("mean", 1.4, "inconclusive")),
    ],
)
def test_a_largest_value_that_is_too_large_is_so_whatever_is_missing(which, value, verdict):
    bounds = {"at_least": 1.25, "at_most": 1.35}
    assert judge(which=which, bounds=bounds)(results(ours=(value, None))).verdict == verdict


def test_no_value_at_all_is_a_missing_result():
    with pytest.raises(MissingResultError, match="oom: does not fit"):
        FASTEST(results(ours=(None, None), theirs=(1.0, 1.0), third=(2.0, 2.0)))


def test_memory_is_known_of_what_does_not_fit():
    needs = Bounded(("peak_memory",), {"at_most": 80e9})
    assert needs(results(ours=(1.0, None))).verdict == "contradicted"


def test_a_miss_that_says_something_of_us_contradicts_nobody():
    blamed = judge(miss="our table is not theirs")
    assert blamed(results(ours=(2.0, 2.0))).verdict == "holds"
    missed = blamed(results(ours=(2.0, 0.5)))
    assert (missed.verdict, missed.explanation[:37]) == ("inconclusive", "missed, but our table is not theirs: ")


@pytest.mark.parametrize(("value", "verdict"), [(2.049, "holds"), (2.051, "contradicted"), (1.9, "holds")])
def test_one_end_of_the_digits_printed(value, verdict):
    """At most as much, where the paper prints 2.0."""
    derived = Results(results(ours=(value, value)).points, "derived")
    assert judge(over=PUBLISHED, rule="rounding", bounds={"at_most": 1})(derived).verdict == verdict


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "above 1 tokens/s: each tokens per second of ours"),
        (
            {"of": {"m": [8, 16]}, "which": "most"},
            "above 1 tokens/s: more than half of all values of tokens per second of m=8 and 16",
        ),
        (
            {"over": {"series": ["theirs", "third"]}, "of_paper": True},
            "above 1: each tokens per second as printed of ours divided by that of theirs and of third in the same",
        ),
        (
            {"less": {"m": 16}, "match": "series"},
            "above 1 tokens/s: each tokens per second of ours minus that of m=16 in the same ser",
        ),
        ({"over": PUBLISHED}, "above 1: each tokens per second of ours divided by the paper's"),
        (
            {"over": PUBLISHED, "rule": "rounding", "bounds": {"at_least": 1, "at_most": 1}},
            "equal, to the digits printed: each tokens per second of ours against the paper's",
        ),
        (
            {"miss": "our table is not theirs"},
            "above 1 tokens/s: each tokens per second of ours; a miss is inconclusive: o",
        ),
        ({"hit": "our table is better"}, "above 1 tokens/s: each tokens per second of ours; a hit is inconclusive: o"),
        (
            {"over": PUBLISHED, "inexact": 0.02},
            "above 1: each tokens per second of ours divided by the paper's; a miss by at most 0.02 more is in",
        ),
        ({"rule": "exact", "bounds": {"at_least": 1, "at_most": 1}}, "exactly 1: each tokens per second of ours"),
    ],
)
def test_what_is_compared_in_words(fields, words):
    assert judge(shown=METRICS, **fields).tolerance.startswith(words)


def test_bounds_are_said_in_the_units_shown():
    percent = Bounded(("model_flops_utilization",), {"at_least": 0.5415}, shown=METRICS)
    points = Bounded(("model_flops_utilization",), {"at_most": 0.01}, less={"m": 16}, shown=METRICS)
    assert percent.tolerance == "at least 54.15%: each model FLOPs utilization"
    assert points.tolerance.startswith("at most 1 point: ")
    assert Bounded(("peak_memory",), {"at_least": 80e9}, shown=METRICS).tolerance.startswith("at least 80 GB: ")


@pytest.mark.parametrize(("ours", "verdict"), [(2.5, "holds"), (2.4, "inconclusive"), (2.3, "paper inconsistent")])
def test_what_a_paper_prints_contradicts_it_beyond_the_digits_printed_alone(ours, verdict):
    """At least 1.25 times 2.0, both printed to 0.1: 2.4 may be 2.45, over 1.95 that is 1.256; 2.3 at most 1.205."""
    points = [
        replace(point, paper={"tokens_per_s": PaperValue(value, "tokens/s", "table", quantum=0.1)})
        for point, value in zip(results(ours=(1.0, 1.0), theirs=(1.0, 1.0)).points, (ours, 2.6, 2.0, 2.0), strict=True)
    ]
    printed = judge(over={"series": "theirs"}, bounds={"at_least": 1.25}, of_paper=True)
    judged = printed(Results(tuple(points), "simulated"))
    assert judged.verdict == verdict
    assert {number.origin for number in judged.numbers.values()} == {"paper"}


def within(share):
    """What moves each point alone by this share."""

    def moved(results, read):
        for point in results.points:
            for factor in (1 + share, 1 / (1 + share)):
                yield Alternative(point.label, factor, partial(one_moved, results, point, factor))

    def one_moved(results, chosen, factor, part):
        value = chosen.metrics["tokens_per_s"].value * factor**part if chosen.status == "ok" else 0.0
        moved = replace(chosen, metrics={"tokens_per_s": Metric(value, "tokens/s", "simulated")})
        return Results(tuple(moved if point.key == chosen.key else point for point in results.points), "simulated")

    return moved


@pytest.mark.parametrize(
    ("fields", "ours", "verdict"),
    [({"hit": "w"}, 1.1, "inconclusive"), ({"hit": "w"}, 0.9, "contradicted"), ({"miss": "w"}, 0.9, "inconclusive")],
)
def test_a_hit_or_a_miss_that_says_something_of_us_alone_decides_nothing(fields, ours, verdict):
    assert judge(bounds={"at_least": 1}, **fields)(results(ours=(ours, ours))).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(2.05, "holds"), (2.06, "inconclusive"), (2.07, "inconclusive"), (2.08, "contradicted"), (1.93, "inconclusive")],
)
def test_a_miss_within_the_rounding_of_what_a_value_follows_from_is_inconclusive(ours, verdict):
    """2.0 is printed to 0.1, and what it follows from is rounded so that it may be off by 0.02."""
    derived = Results(results(ours=(ours, ours)).points, "derived")
    followed = judge(over=PUBLISHED, rule="rounding", inexact=0.02, bounds={"at_least": 1, "at_most": 1})
    assert followed(derived).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(1.0, "holds"), (0.97, "inconclusive"), (0.95, "contradicted"), (1.01, "holds"), (1.2, "contradicted")],
)
def test_a_miss_by_no_more_than_ours_falls_short_is_inconclusive(ours, verdict):
    """Theirs would be up to 4% faster: 0.97 may be 1.0088, and 0.95 at most 0.988."""
    assert judge(short=0.04, bounds={"at_least": 1, "at_most": 1.1})(results(ours=(ours, ours))).verdict == verdict


@pytest.mark.parametrize(("margin", "verdict"), [(0.06, "inconclusive"), (0.04, "contradicted")])
def test_several_points_that_miss_contradict_no_more_than_the_worst(margin, verdict):
    """At least 1: 0.95 is 5.3% below, and the other 2.0%."""
    missing = replace(results(ours=(0.98, 0.95)), moved=within(margin))
    claim = Claim("c", "S.", "Section 1", "simulated", None, judge(bounds={"at_least": 1}))
    judged = judging.judge(claim, missing)
    assert judged.verdict == verdict
    assert ("each that misses would hold by itself, the last if m=16 is 5.3% higher" in judged.explanation) == (
        verdict == "inconclusive"
    )


def test_a_verdict_without_some_points_flips_as_soon_as_the_others_agree():
    undecided = replace(results(ours=(0.98, None)), moved=within(0.06))
    claim = Claim("c", "S.", "Section 1", "simulated", None, judge(bounds={"at_least": 1}))
    assert judging.judge(claim, undecided).verdict == "inconclusive"


@pytest.mark.parametrize(("ours", "verdict"), [(2.09, "holds"), (1.91, "holds"), (2.11, "contradicted")])
def test_the_digits_of_what_a_value_follows_from_widen_the_bound(ours, verdict):
    point = results(ours=(ours, ours)).points[0]
    paper = {**point.paper, "peak_memory": PaperValue(40.0, "B", "table", quantum=2.0)}
    followed = judge(
        over=PUBLISHED, rule="ours", digits=True, inputs=("peak_memory",), bounds={"at_least": 1, "at_most": 1}
    )
    assert followed(Results((replace(point, paper=paper),), "derived")).verdict == verdict  # 2.5% of each


def test_what_is_tested_may_be_said_in_words():
    said = judge(tested="so many tokens in both settings", untested="the third clause", narrow=True)
    assert said.tolerance == (
        "above 1: so many tokens in both settings; the simulator's margin is wider than this bound, so that a "
        "simulation can contradict it or stay open, but not confirm it; not tested: the third clause"
    )
