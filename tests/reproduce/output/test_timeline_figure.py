"""Timeline figures, and the artifacts of Figures 3 and 4."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from ptdp_core.schedules import build, peak_stash
from ptdp_core.schedules.registry import DEFINITIONS
from reproduce.experiment.catalog import load
from reproduce.experiment.results import Results
from reproduce.output import theme, timeline_figure
from reproduce.output.colours import IDLE
from reproduce.output.timeline import from_schedule
from reproduce.output.timeline_colours import DARK, colour, luminance, text_colour
from reproduce.output.timeline_figure import draw
from reproduce.output.timeline_files import timeline_files
from reproduce.output.timeline_memory import STRIP
from reproduce.output.timeline_titles import title
from reproduce.output.traces import trace
from reproduce.running.fidelities import evaluator
from reproduce.running.runner import plan, run
from tests.ptdp_core.schedules.toys import V

SCHEDULES = [
    ("gpipe", 4, 8, 1, 2),
    ("1f1b", 4, 8, 1, 1),
    ("1f1b", 3, 40, 1, 3),
    ("interleaved", 4, 8, 2, 2),
    ("interleaved", 8, 16, 4, 2),
    ("zb-h1", 4, 8, 1, 3),
]
IDS = [f"{name}-p{p}-m{m}-v{v}" for name, p, m, v, _ in SCHEDULES]
ARTIFACTS = ("fig_gpipe_timeline", "fig_interleaved_timeline")


def timeline_of(name, p, m, v, factor=2, batches=1):
    return from_schedule(build(name, p, m, v), factor, batches)


def drawn_boxes(axes):
    """The rectangles of a panel: (pass and chunk, row, left, right), and the colour of each pass and chunk."""
    boxes, colours = set(), {}
    for collection in axes.collections:
        colours[collection.get_gid()] = collection.get_facecolor()
        for path in collection.get_paths():
            (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
            assert int(top) == int(bottom)
            boxes.add((collection.get_gid(), int(top), round(left, 6), round(right, 6)))
    return boxes, colours


def expected_boxes(timeline, until):
    return {
        (
            f"{box.kind}{timeline.chunk_of(box.action)}",
            rank,
            round(float(box.start), 6),
            round(min(float(box.end), until), 6),
        )
        for rank, row in enumerate(timeline.rows)
        for box in row
        if box.start < until
    }


def numbers(axes):
    return [text for text in axes.texts if text.get_gid() == "number"]


@pytest.fixture
def styled():
    with theme.style():
        yield


@pytest.mark.usefixtures("styled")
class TestFigure:
    @pytest.mark.parametrize("which", SCHEDULES, ids=IDS)
    def test_boxes_are_the_executed_spans(self, which):
        timeline = timeline_of(*which)
        figure = draw([timeline])
        (axes,) = figure.axes
        boxes, colours = drawn_boxes(axes)
        assert boxes == expected_boxes(timeline, float(timeline.end))
        assert len(boxes) == timeline.boxes
        from matplotlib.colors import to_rgba

        for gid, drawn in colours.items():
            assert tuple(drawn[0]) == to_rgba(colour(gid[0], int(gid[1:]), timeline.v))
        assert to_rgba(axes.get_facecolor()) == to_rgba(IDLE)
        assert [tick.get_text() for tick in axes.get_yticklabels()] == [f"Device {r + 1}" for r in range(timeline.p)]
        assert figure.get_figwidth() == theme.PAGE

    def test_a_fused_pair_lies_above_each_other(self):
        timeline = timeline_of("dualpipev-overlap", 4, 8, 2)
        figure = draw([timeline])
        (axes,) = figure.axes
        boxes, _ = drawn_boxes(axes)
        assert boxes == expected_boxes(timeline, float(timeline.end))
        fused = build("dualpipev-overlap", 4, 8, 2).fused
        edges = {}
        for collection in axes.collections:
            for path in collection.get_paths():
                (left, top), (right, bottom) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                edges[int(top), round(left, 6), round(right, 6), collection.get_gid()] = top % 1, bottom % 1
        halves = 0
        for rank, row in enumerate(timeline.rows):
            for box, following in pairwise(row):
                if box.action in fused:
                    span = rank, round(float(box.start), 6), round(float(box.end), 6)
                    gids = [f"{each.kind}{timeline.chunk_of(each.action)}" for each in (box, following)]
                    (top, middle), (other, bottom) = (edges[*span, gid] for gid in gids)
                    assert top < middle < 0.5 < other < bottom
                    halves += 1
        assert halves == len(fused) > 16
        assert len(numbers(axes)) == timeline.boxes
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels[-2:] == ["Above each other: run together", "Idle"]
        assert "Above each other: run together" not in [
            text.get_text() for text in draw([timeline_of("dualpipev", 4, 8, 2)]).legends[0].get_texts()
        ]

    @pytest.mark.parametrize("which", SCHEDULES, ids=IDS)
    def test_numbers_are_the_microbatches_and_fit_their_boxes(self, which):
        timeline = timeline_of(*which)
        (axes,) = draw([timeline]).axes
        middles = {
            (rank, round(float(box.start + box.end) / 2, 6)): box
            for rank, row in enumerate(timeline.rows)
            for box in row
        }
        drawn = numbers(axes)
        if timeline.p == 4:
            assert len(drawn) == timeline.boxes
        for text in drawn:
            x, y = text.get_position()
            box = middles[int(y), round(x, 6)]
            assert text.get_text() == str(box.action.microbatch + 1)
            fill = colour(box.kind, timeline.chunk_of(box.action), timeline.v)
            assert text.get_color() == text_colour(fill)
            assert text.get_fontsize() >= timeline_figure.SMALLEST
            extent = text.get_window_extent()
            (left, bottom), (right, top) = axes.transData.transform(
                [(float(box.start), int(y) + 1), (float(box.end), int(y))]
            )
            assert left <= extent.x0
            assert extent.x1 <= right
            assert bottom <= extent.y0
            assert extent.y1 <= top

    @pytest.mark.parametrize("which", SCHEDULES, ids=IDS)
    def test_nothing_overlaps_or_leaves_the_figure(self, which):
        figure = draw([timeline_of(*which)])
        (axes,) = figure.axes
        texts = [text for text in axes.texts if text.get_text() and text.get_gid() != "number"]
        end = axes.get_xlim()[1]
        ticks = [text for text in axes.get_xticklabels() if 0 <= text.get_position()[0] <= end]
        extents = [text.get_window_extent() for text in (*texts, *ticks, *axes.get_yticklabels())]
        extents += [legend.get_window_extent() for legend in figure.legends]
        extents += [text.get_window_extent() for text in figure.texts]
        for extent in extents:
            assert extent.x0 >= 0
            assert extent.y0 >= 0
            assert extent.x1 <= figure.bbox.width
            assert extent.y1 <= figure.bbox.height
        assert not [pair for pair in combinations(extents, 2) if pair[0].overlaps(pair[1])]

    @pytest.mark.parametrize("which", [("zb-h1", 4, 8, 1), ("v-half", 4, 8, 2), ("gpipe", 1, 3, 1)])
    def test_memory_under_each_row_and_its_peak_at_the_right(self, which):
        figure = draw([timeline_of(*which)], memory=True)
        (axes,) = figure.axes
        peaks = [text for text in axes.texts if text.get_gid() == "peak"]
        table = build(*which)
        assert [float(text.get_text()) for text in peaks] == [peak / table.v for peak in peak_stash(table)]
        boxes = {patch.get_y() for patch in axes.patches if patch.get_gid() == "strip"}
        assert boxes == {rank * (1 + STRIP) + 1 for rank in range(table.p)}
        stashed = [area.get_datalim(axes.transData) for area in axes.collections if area.get_gid() == "stashed"]
        assert len(stashed) == table.p
        assert all(top < area.y0 < area.y1 < top + STRIP for top, area in zip(sorted(boxes), stashed, strict=True))
        extents = [text.get_window_extent() for text in (*peaks, *axes.get_yticklabels())]
        assert not [pair for pair in combinations(extents, 2) if pair[0].overlaps(pair[1])]
        assert max(extent.x1 for extent in extents) <= figure.bbox.width

    def test_a_long_title_shrinks(self):
        usual = timeline_of("interleaved", 4, 8, 2)
        figures = [draw([timeline]) for timeline in (usual, replace(usual, bubble=Fraction(10**20, 3 * 10**20 + 1)))]
        headings = [text for figure in figures for text in figure.axes[0].texts if text.get_gid() == "title"]
        assert headings[1].get_fontsize() < headings[0].get_fontsize()
        assert headings[1].get_window_extent().x1 <= figures[1].bbox.width

    def test_second_batch_is_cut(self):
        timeline = timeline_of("gpipe", 4, 8, 1, batches=2)
        (axes,) = draw([timeline], until=41.5).axes
        boxes, _ = drawn_boxes(axes)
        assert boxes == expected_boxes(timeline, 41.5)
        assert max(right for _, _, _, right in boxes) == 41.5
        labels = [text.get_text() for text in numbers(axes)]
        assert labels.count("9") == 4
        assert labels.count("8") == 8
        (flush,) = [line for line in axes.lines if line.get_gid() == "flush"]
        assert list(flush.get_xdata()) == [33.0, 33.0]

    def test_panels_share_the_time_scale_and_the_flush_is_earlier_below(self):
        shown = [timeline_of("1f1b", 4, 8, 1), timeline_of("interleaved", 4, 8, 2)]
        top, bottom = draw(shown).axes
        assert top.get_xlim() == bottom.get_xlim() == (0, 33)
        assert top.get_position().x0 == bottom.get_position().x0
        assert top.get_position().width == bottom.get_position().width
        flushes = [line.get_xdata()[0] for axes in (top, bottom) for line in axes.lines if line.get_gid() == "flush"]
        assert flushes == [33.0, 28.5]

    def test_says_origin_legend_and_time(self):
        figure = draw([timeline_of("interleaved", 4, 8, 2)])
        assert [text.get_text() for text in figure.texts] == ["derived: executed schedule, $t_b$ = 2 $t_f$"]
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels == ["Forward pass, chunks 1 and 2", "Backward pass, chunks 1 and 2", "Idle"]
        assert "Time" in [text.get_text() for text in figure.axes[0].texts]

    def test_legend_has_the_passes_there_are(self):
        figure = draw([timeline_of("1f1b", 4, 8, 1), timeline_of("zb-h1", 4, 8, 1)])
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels == ["Forward pass", "Backward pass", "Input gradient", "Weight gradient", "Idle"]
        assert "of it $t_w$ = $t_f$" in figure.texts[0].get_text()

    def test_wide_gap_says_idle(self):
        (axes,) = draw([timeline_of("gpipe", 4, 8, 1)]).axes
        (idle,) = [text for text in axes.texts if "idle" in text.get_text()]
        assert idle.get_text() == "devices idle"
        assert idle.get_position() == (12.5, 0.52)  # between 8 and 17 on device 1

    def test_same_bytes_and_fonts_that_stay_text(self):
        schedule = build("1f1b", 2, 4)
        first, second = (timeline_files(schedule, from_schedule(schedule))[0] for _ in range(2))
        assert first == second
        assert b"/CreationDate" not in first["figure.pdf"]
        assert b"/Type3" not in first["figure.pdf"]
        assert b"/CIDFontType2" in first["figure.pdf"]
        assert first["figure.png"].startswith(b"\x89PNG")


# Machado, Oliveira and Fernandes (2009): colour vision without one kind of cone, on linear RGB.
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(hex_colour, deficiency):
    """CIELAB of a colour as seen with a deficiency; a distance of 2 can just be told apart."""
    rgb = np.array([int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    perceived = np.clip(np.asarray(DEFICIENCIES[deficiency]) @ linear, 0, 1)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.asarray(to_xyz) @ perceived / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.usefixtures("styled")
def test_weight_gradients_differ_without_colour_too():
    (axes,) = draw([timeline_of("zb-h1", 4, 8, 1)]).axes
    hatches = {collection.get_gid(): collection.get_hatch() for collection in axes.collections}
    assert hatches.keys() == {"F0", "I0", "W0"}
    assert [name for name, hatch in hatches.items() if hatch] == ["W0"]


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_split_passes_are_apart_from_all_others_with_any_colour_vision(deficiency):
    """Even where whole and split backward passes mix, and from every chunk's colours."""
    perceived = {kind: lab(DARK[kind], deficiency) for kind in DARK}
    others = [lab(colour(kind, chunk, 8), deficiency) for kind in "FB" for chunk in range(8)]
    idle = lab(IDLE, deficiency)
    assert np.linalg.norm(perceived["I"] - perceived["W"]) > 25
    for kind in "IW":
        assert idle[0] - perceived[kind][0] > 10
        assert min(np.linalg.norm(perceived[kind] - other) for other in (*others, idle)) > 25


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("v", [1, 2, 4, 8])
def test_colours_are_apart_with_any_colour_vision(deficiency, v):
    passes = {(kind, chunk): lab(colour(kind, chunk, v), deficiency) for kind in "FB" for chunk in range(v)}
    idle = lab(IDLE, deficiency)
    for perceived in passes.values():
        assert np.linalg.norm(perceived - idle) > 25
        assert idle[0] - perceived[0] > 10  # by lightness alone, too: in print, and on a bad projector
    for kind in "FB":
        shades = [passes[kind, chunk][0] for chunk in range(v)]
        assert all(light - dark > 2.5 for dark, light in pairwise(shades))
    for forward in range(v):
        for backward in range(v):
            assert np.linalg.norm(passes["F", forward] - passes["B", backward]) > 25


@pytest.mark.parametrize("v", [1, 2, 4, 8])
def test_numbers_have_contrast(v):
    for kind in DARK:
        for chunk in range(v):
            fill = colour(kind, chunk, v)
            light, dark = sorted(
                (luminance(fill), luminance({"white": "#ffffff", "black": "#000000"}[text_colour(fill)]))
            )
            assert (dark + 0.05) / (light + 0.05) > 4.5


def test_title_says_the_executed_bubble():
    assert title(timeline_of("gpipe", 4, 8, 1)) == "GPipe, p = 4, m = 8: bubble (p−1)/m = 3/8 = 37.5 %"
    assert title(timeline_of("1f1b", 1, 2, 1)) == "1F1B, p = 1, m = 2: bubble (p−1)/m = 0/2 = 0 %"
    interleaved = timeline_of("interleaved", 4, 8, 2)
    assert title(interleaved) == "Interleaved 1F1B, p = 4, m = 8, v = 2: bubble (p−1)/(vm) = 3/16 = 18.75 %"
    slower = title(replace(interleaved, bubble=Fraction(1, 4)))
    assert slower.endswith("bubble 1/4 = 25 %; by the formula (p−1)/(vm) = 3/16 = 18.75 %")
    assert title(replace(interleaved, bubble=0.2)).endswith("bubble 20 %; by the formula (p−1)/(vm) = 3/16 = 18.75 %")


def test_title_has_the_bubble_of_the_schedules_own_formula():
    split = timeline_of("zb-h1", 4, 8, 1)
    assert title(split) == "ZB-H1, p = 4, m = 8: bubble 1/8 = 12.5 %"  # (p-1)(t_f + t_i - t_w)/(m(t_f + t_b)) = 3/24
    assert title(replace(split, bubble=0.2)).endswith("bubble 20 %; by its formula 12.5 %")


@pytest.fixture(scope="module", params=ARTIFACTS)
def finished(request, tmp_path_factory):
    """A run of each artifact."""
    artifact = load(request.param)
    return run(plan(artifact, tmp_path_factory.mktemp("results")), ["test"], exported=True)


class TestArtifacts:
    def test_claims_hold_but_for_two_and_all_points_agree(self, finished):
        assert {point.status for point in finished.record.points} == {"ok"}
        others = {claim.id for claim in finished.record.claims if claim.verdict != "holds"}
        assert others <= {"interleaved_communication_in_total", "interleaved_multiple_of_p"}
        for point in finished.record.points:
            assert point.metrics["bubble_fraction"].value == point.paper["bubble_fraction"].value

    def test_files(self, finished):
        assert {path.name for path in finished.files} >= {"record.json", "figure.pdf", "figure.png", "trace.json"}
        (path,) = [path for path in finished.files if path.name == "trace.json"]
        events = json.loads(path.read_text())["traceEvents"]
        panels = 1 if finished.plan.artifact.id == "fig_gpipe_timeline" else 2
        assert {event["pid"] for event in events} == set(range(1, panels + 1))

    def test_figure_is_drawn_from_the_record(self, finished):
        artifact = finished.plan.artifact
        with theme.style():
            axes = artifact.draw(artifact, finished.record).axes
        titles = [text.get_text() for panel in axes for text in panel.texts if text.get_gid() == "title"]
        expected = {
            "fig_gpipe_timeline": ["GPipe, p = 4, m = 8: bubble (p−1)/m = 3/8 = 37.5 %"],
            "fig_interleaved_timeline": [
                "1F1B, p = 4, m = 8: bubble (p−1)/m = 3/8 = 37.5 %",
                "Interleaved 1F1B, p = 4, m = 8, v = 2: bubble (p−1)/(vm) = 3/16 = 18.75 %",
            ],
        }
        assert titles == expected[artifact.id]
        for panel, end in zip(axes, {"fig_gpipe_timeline": [41]}.get(artifact.id, [37, 37]), strict=True):
            assert panel.get_xlim() == (0, end)
        labels = {text.get_text() for text in numbers(axes[0])}
        last = {"fig_gpipe_timeline": 16}.get(artifact.id, 12)
        assert labels == {str(i) for i in range(1, last + 1)}

    def test_numbers_are_evaluated_again_the_same(self, finished):
        evaluate = evaluator(finished.plan)
        assert [evaluate.evaluate(point) for point in finished.plan.points] == list(finished.record.points)


def test_communication_claims_give_the_exact_ratios():
    artifact = load("fig_interleaved_timeline")
    evaluate = evaluator(plan(artifact, Path()))
    results = Results(tuple(evaluate.evaluate(point) for point in artifact.points("paper")), "derived")
    judges = {claim.id: claim.judge for claim in artifact.claims}
    assert judges["interleaved_communication_by_v"](results).numbers["neighbour_ratio"].value == 2
    judgement = judges["interleaved_communication_in_total"](results)
    assert judgement.verdict == "contradicted"
    assert judgement.numbers["total_ratio"].value == pytest.approx((4 * 2 - 1) / (4 - 1))
    assert "(pv-1)/(p-1)" in judgement.explanation
    assert "2.333 (p=4, v=2)" in judgement.explanation


def test_a_v_placement_is_drawn_with_the_chunks_that_ranks_hold(monkeypatch):
    """A schedule that only this test registers: on the last of two ranks stage 1 is chunk 0 and stage 2 chunk 1."""
    monkeypatch.setitem(DEFINITIONS, V.name, V)
    timeline = from_schedule(build(V.name, 2, 4, 2))
    assert title(timeline).startswith("V, greedy, p = 2, m = 4, v = 2: bubble ")
    assert {(box.action.stage, timeline.chunk_of(box.action)) for box in timeline.rows[1]} == {(1, 0), (2, 1)}
    with theme.style():
        figure = draw([timeline])
    drawn = {c.get_gid(): len(c.get_paths()) for c in figure.axes[0].collections}
    assert drawn == dict.fromkeys(("F0", "F1", "B0", "B1"), 8)
    flows = [event for event in json.loads(trace([timeline]))["traceEvents"] if event["ph"] == "s"]
    assert len(flows) == 4 * 4  # of six ways between stages two are inside rank 1
