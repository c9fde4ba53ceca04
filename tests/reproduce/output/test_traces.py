"""Traces: what Perfetto needs of them, and that they say what the schedule and the simulator say."""

import json
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import bubble_fraction as ideal_bubble
from ptdp_core.schedules import Exchange, bubble_fraction, build, lower
from ptdp_core.simulator import load_cluster, simulate
from reproduce.experiment.sweep import Point
from reproduce.output.timeline import Timeline, derive, from_schedule, measure, schedule_of
from reproduce.output.traces import trace

SCHEDULES = [
    ("gpipe", 1, 3, 1),
    ("gpipe", 4, 8, 1),
    ("1f1b", 4, 8, 1),
    ("1f1b", 5, 3, 1),
    ("interleaved", 2, 4, 2),
    ("interleaved", 4, 4, 2),
    ("interleaved", 4, 8, 3),
    ("zb-h1", 4, 8, 1),
]
CATEGORIES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}


def estimate(**parallel):
    config = TrainingConfig(ModelConfig(layers=24, hidden=1024, heads=16), ParallelConfig(**parallel))
    return simulate(config, load_cluster("selene"), timeline=True)


def in_seconds(**parallel):
    """A simulated iteration's passes, as those of a record."""
    result = estimate(**parallel)
    sizes = result.config.parallel
    rows = tuple(tuple(event for event in row if event.action) for row in result.timeline)
    return Timeline(sizes.schedule, sizes.placement, sizes.m, "s", rows, (), result.bubble_fraction, "simulated")


def timelines():
    """Timelines of all kinds, by a name."""
    by_name = {f"{name}-{p}-{m}-{v}": from_schedule(build(name, p, m, v), batches=2) for name, p, m, v in SCHEDULES}
    by_name["thirds"] = from_schedule(build("interleaved", 4, 8, 2), Fraction(7, 3))
    by_name["simulated"] = in_seconds(p=4, d=2, B=16)
    by_name["simulated ZB-H1"] = in_seconds(p=4, B=8, schedule="zb-h1")
    by_name["simulated interleaved"] = in_seconds(p=4, v=2, B=8)
    return by_name


TIMELINES = timelines()


def nanoseconds(time):
    """Trace times are microseconds with three decimals, so that integers of nanoseconds compare exactly."""
    assert isinstance(time, int | float)
    assert abs(time * 1000 - round(time * 1000)) < 1e-3
    return round(time * 1000)


def slices(events):
    """(pid, tid) -> [(begin, end, event)] in file order."""
    threads = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = nanoseconds(event["ts"])
            threads[event["pid"], event["tid"]].append((begin, begin + nanoseconds(event["dur"]), event))
    return threads


@pytest.mark.parametrize("name", TIMELINES)
def test_slices_are_the_boxes_in_order_and_never_overlap(name):
    timeline = TIMELINES[name]
    document = json.loads(trace([timeline]))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    threads = slices(document["traceEvents"])
    assert sorted(threads) == [(1, rank + 1) for rank in range(timeline.p)]
    scale = 10**6 if timeline.unit == "t_f" else 10**9
    for (_, tid), row in threads.items():
        boxes = timeline.rows[tid - 1]
        expected = [(round(box.start * scale), round(box.end * scale)) for box in boxes]
        assert [(begin, end) for begin, end, _ in row] == expected
        assert all(begin <= end for begin, end in expected)
        assert all(end <= begin for (_, end, _), (begin, _, _) in pairwise(row))
        for (_, _, event), box in zip(row, boxes, strict=True):
            kind, stage, microbatch = box.action
            assert event["name"] == event["args"]["action"] == str(box.action)
            assert event["cat"] == CATEGORIES[kind]
            chunk = stage // timeline.p
            assert event["args"] == {
                "action": str(box.action), "stage": stage, "chunk": chunk, "microbatch": microbatch,
            }  # fmt: skip


def test_the_slices_of_a_fused_pair_are_the_same():
    timeline = from_schedule(build("dualpipev-overlap", 3, 6, 2))
    fused = {str(action) for action in build("dualpipev-overlap", 3, 6, 2).fused}
    pairs = 0
    for row in slices(json.loads(trace([timeline]))["traceEvents"]).values():
        for (begin, end, event), (following, after, beside) in pairwise(row):
            if event["name"] in fused:
                assert (begin, end) == (following, after)
                assert (event["cat"], beside["cat"]) == ("forward", "backward")
                pairs += 1
            else:
                assert end <= following or (begin, end) == (following, after)
    assert pairs == len(fused)


@pytest.mark.parametrize("name", TIMELINES)
def test_every_thread_has_a_name(name):
    timeline = TIMELINES[name]
    events = json.loads(trace([timeline]))["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert named == {(1, r + 1): f"Device {r + 1} (pipeline rank {r})" for r in range(timeline.p)}
    (process,) = [event for event in events if event["name"] == "process_name"]
    assert timeline.schedule in process["args"]["name"]


@pytest.mark.parametrize("name", TIMELINES)
def test_flows_join_the_two_ends_of_every_message(name):
    timeline = TIMELINES[name]
    events = json.loads(trace([timeline]))["traceEvents"]
    threads = slices(events)

    def enclosing(flow):
        start_ns = nanoseconds(flow["ts"])
        hits = [e for begin, end, e in threads[flow["pid"], flow["tid"]] if begin <= start_ns < end]
        assert len(hits) == 1, "a flow has to lie in exactly one slice"
        return hits[0]["args"]

    starts, ends = ({e["id"]: e for e in events if e["ph"] == ph} for ph in "sf")
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(event["ph"] == "s" for event in events)
    assert all(isinstance(id, int) for id in starts)
    messages = set()
    for id, start in starts.items():
        end = ends[id]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert end["bp"] == "e"
        assert nanoseconds(start["ts"]) <= nanoseconds(end["ts"])
        producer, consumer = enclosing(start), enclosing(end)
        forward = start["name"] == "activations"
        assert consumer["stage"] == producer["stage"] + (1 if forward else -1)
        assert consumer["microbatch"] == producer["microbatch"]
        assert start["tid"] != end["tid"]
        kind = "F" if forward else "B"
        messages.add((kind, producer["stage"], producer["microbatch"], start["tid"] - 1, end["tid"] - 1))
    program = lower(build(timeline.schedule, timeline.p, timeline.m, timeline.v), "blocking")
    sent = {tuple(m) for row in program.ranks for i in row if isinstance(i, Exchange) for m in i.sends}
    first_batch = {message for message in messages if message[2] < timeline.m}
    assert first_batch == sent
    assert len(messages) == len(sent) * (len(timeline.flushes) or 1)


def test_several_timelines_are_processes_with_their_own_flows():
    both = [TIMELINES["1f1b-4-8-1"], TIMELINES["interleaved-4-8-3"]]
    events = json.loads(trace(both))["traceEvents"]
    assert {event["pid"] for event in events} == {1, 2}
    ids = defaultdict(set)
    for event in events:
        if event["ph"] in "sf":
            ids[event["id"]].add(event["pid"])
    assert all(len(pids) == 1 for pids in ids.values())


def test_trace_is_stable_and_says_its_origin():
    timeline = TIMELINES["gpipe-4-8-1"]
    assert trace([timeline]) == trace([timeline])
    other = json.loads(trace([timeline]))["otherData"]
    assert other["origin"] == "derived: executed schedule, t_b = 2 t_f"
    assert "1 ms" in other["time"]
    assert json.loads(trace([TIMELINES["simulated"]]))["otherData"]["origin"] == "simulated"


@pytest.mark.parametrize(("name", "p", "m", "v"), SCHEDULES)
@pytest.mark.parametrize("factor", [1, 2, Fraction(7, 3)])
def test_schedule_timeline_is_in_units_of_a_devices_forward_pass(name, p, m, v, factor):
    timeline = from_schedule(build(name, p, m, v), factor, batches=2)
    assert timeline.bubble == bubble_fraction(build(name, p, m, v), 1, factor)
    if name != "zb-h1":
        assert timeline.bubble == Fraction(p - 1, v * m)
    assert timeline.flushes == (timeline.end / 2, timeline.end)
    assert timeline.flushes[0] == m * (1 + factor) * (1 + timeline.bubble)
    for row in timeline.rows:
        assert sum(box.end - box.start for box in row) == 2 * m * (1 + factor)
        assert {box.action.microbatch for box in row} == set(range(2 * m))
        assert all((box.action.microbatch < m) == (box.end <= timeline.flushes[0]) for box in row)


@pytest.mark.parametrize(
    ("factor", "text"),
    [(1, "t_b = t_f"), (2, "t_b = 2 t_f"), (Fraction(3, 2), "t_b = 3/2 t_f"), (Fraction("1.2345"), "t_b = 1.234 t_f")],
)
def test_origin_says_the_factor(factor, text):
    assert from_schedule(build("gpipe", 1, 1), factor).origin == f"derived: executed schedule, {text}"


def test_the_weights_part_of_a_split_backward_pass():
    thirds = from_schedule(build("zb-h1", 4, 8), Fraction(3), weights=Fraction(1))
    assert thirds.origin == "derived: executed schedule, t_b = 3 t_f, of it t_w = t_f"
    lengths = {(box.kind, box.end - box.start) for row in thirds.rows for box in row}
    assert lengths == {("F", 1), ("I", 2), ("W", 1)}
    assert thirds.bubble == Fraction(3 * (1 + 2 - 1), 8 * 4)
    halves = from_schedule(build("zb-h1", 4, 8), 3)
    assert {box.end - box.start for row in halves.rows for box in row if box.kind != "F"} == {Fraction(3, 2)}


@pytest.mark.parametrize("factor", [0, -1])
def test_factor_has_to_be_positive(factor):
    with pytest.raises(ValueError, match=r"factor=.*; needs a positive number; try factor=2"):
        from_schedule(build("1f1b", 2, 2), factor)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 8, 4), (8, 16, 3)])
def test_measure_counts_what_the_formulas_say(p, m, v):
    default, new = (measure(build(*which), Fraction(2)) for which in (("1f1b", p, m), ("interleaved", p, m, v)))
    assert default["messages"] == default["neighbour_messages"] == (2 * m * (p - 1), "count")
    assert new["messages"][0] == 2 * m * (p * v - 1)
    if p > 2:
        assert new["neighbour_messages"][0] == v * default["messages"][0]
    assert new["bubble_fraction"] == (pytest.approx(ideal_bubble(p, m, v)), "1")
    assert default["peak_stash"][0] == min(p, m)
    if m > p:
        assert new["peak_stash"][0] == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_derive_gives_metrics_with_origin():
    parameters = {"schedule": "gpipe", "p": 4, "m": 8, "v": 1, "t_f": 2, "t_b": 3.0}
    metrics = derive(Point("a", "", "a", parameters))
    assert {metric.origin for metric in metrics.values()} == {"derived"}
    assert metrics["makespan"].value == 11 * 2.5
    assert metrics["peak_stash"].value == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t_f": 0}, r"t_f=0 is not a time; needs a positive number; try t_f=1"),
        ({"t_b": float("nan")}, r"t_b=nan is not a time; needs a positive number; try t_b=1"),
        ({"t_b": float("inf")}, r"t_b=inf is not a time"),
        ({"t_b": 1001}, r"t_b=1001 with t_f=1; needs a ratio between 1/1000 and 1000; try"),
        ({"t_f": 1001, "t_b": 1}, r"t_b=1 with t_f=1001; needs a ratio"),
        ({"p": 0}, r"p=0 .*; needs p >= 1; try p=1"),
        ({"v": 2}, r"v=2 with schedule='gpipe'; needs v=1"),
    ],
)
def test_parameters_of_no_schedule(change, message):
    good = {"schedule": "gpipe", "p": 4, "m": 8, "v": 1, "t_f": 1, "t_b": 2}
    assert schedule_of(good) == (build("gpipe", 4, 8), 2)
    with pytest.raises(ValueError, match=message):
        schedule_of(good | change)
