"""What a figure contains: the record's numbers, labels with units, the origin; and that nothing overlaps."""

import re
import struct
import zlib
from collections import Counter
from dataclasses import replace
from io import BytesIO
from itertools import pairwise

import matplotlib.colors
import pytest
from fontTools.subset import Options
from fontTools.ttLib import TTFont
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from reproduce.experiment import catalog
from reproduce.experiment.judging import accuracy
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import XAxis
from reproduce.output import chart, colours, figures, theme
from reproduce.papers.sc21 import fig_bubble, fig_interleaved, fig_model_trend, fig_tensor_vs_data
from results import ROOT
from results.records import Metric, read_record
from results.records.errors import UnavailableError
from tests.processes import python

SERIES = ("Non-interleaved", "Interleaved")


def drawn_from(record, artifact=fig_interleaved.ARTIFACT):
    with theme.style():
        return artifact.draw(artifact, record)


@pytest.fixture
def figure(figure_12):
    with theme.style():
        yield drawn_from(figure_12.record)


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].lines}


def test_the_lines_are_the_records_numbers(figure, figure_12):
    drawn = lines(figure)
    assert set(drawn) == {"Non-interleaved", "Interleaved", "Non-interleaved (paper)", "Interleaved (paper)"}
    for series in SERIES:
        points = [p for p in figure_12.record.points if p.series == series]
        assert list(drawn[series].get_xdata()) == [p.parameters["B"] for p in points]
        assert list(drawn[series].get_ydata()) == [p.metrics["throughput_per_gpu"].value / 1e12 for p in points]
        paper = drawn[f"{series} (paper)"]
        assert list(paper.get_ydata()) == [p.paper["throughput_per_gpu"].value / 1e12 for p in points]
        assert paper.get_color() == paper.get_markeredgecolor() == drawn[series].get_color()
        assert paper.get_marker() == drawn[series].get_marker()
        assert paper.get_markersize() > drawn[series].get_markersize()  # seen around ours
        assert paper.get_zorder() < drawn[series].get_zorder()
        assert paper.get_linewidth() < drawn[series].get_linewidth()
        assert paper.is_dashed()
        assert not drawn[series].is_dashed()
        assert paper.get_markerfacecolor() == "none"


def test_axes_say_what_and_in_which_unit(figure):
    axes = figure.axes[0]
    assert axes.get_xlabel() == "Batch size (sequences)"
    assert axes.get_ylabel() == "Achieved teraFLOP/s\nper GPU (eq. 3)"
    figure.draw_without_rendering()
    assert axes.yaxis.label.get_window_extent().height <= axes.get_window_extent().height
    assert axes.get_ylim()[0] == 0
    assert [text.get_text() for text in axes.get_xticklabels()] == ["12", "24", "36", "48", "60"]


def test_a_label_is_broken_between_words(figure_12):
    artifact = replace(fig_interleaved.ARTIFACT, quantities=(METRICS["sequences_per_s"],))
    figure = drawn_from(figure_12.record, artifact)
    figure.axes[0].set_ylabel("Throughput (sequences/s)")
    figure.set_figheight(1.3)
    figures.fit_labels(figure)
    assert figure.axes[0].get_ylabel() == "Throughput\n(sequences/s)"


def test_origin_and_accuracy_are_drawn(figure, figure_12):
    foot = figure._supxlabel.get_text()
    assert "simulated: ptdp on Selene model; paper's values: plot" in foot
    score = accuracy(fig_interleaved.ARTIFACT, figure_12.record.points)
    assert f"mean error {score.mean:.1%} on 10 published points (worst {score.worst_signed:+.1%})" in foot


def test_a_partial_record_says_so(figure_12):
    record = replace(figure_12.record, state="partial")
    assert "PARTIAL" in "\n".join(chart.origin_lines(fig_interleaved.ARTIFACT, record))


def test_size_fonts_and_colours(figure):
    assert figure.get_figwidth() == theme.COLUMN
    assert {text.get_fontsize() for text in figure.axes[0].get_xticklabels()} == {7}
    assert theme.STYLE["pdf.fonttype"] == 42
    lightness = [sum(matplotlib.colors.to_rgb(colour)) for colour in colours.PALETTE]
    assert len(set(lightness)) == len(colours.PALETTE)
    assert len(theme.MARKERS) >= len(colours.PALETTE)  # never by colour alone


def test_nothing_overlaps(figure):
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    axes, legend = figure.axes[0], figure.legends[0]
    boxes = {
        "legend": legend.get_window_extent(renderer),
        "axes": axes.get_window_extent(renderer),
        "x label": axes.xaxis.label.get_window_extent(renderer),
        "y label": axes.yaxis.label.get_window_extent(renderer),
        "foot": figure._supxlabel.get_window_extent(renderer),
    }
    names = list(boxes)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            assert not boxes[a].overlaps(boxes[b]), (a, b)
        assert boxes[a].x0 >= 0
        assert boxes[a].x1 <= figure.bbox.x1
        assert boxes[a].y0 >= 0
        assert boxes[a].y1 <= figure.bbox.y1


def test_the_users_settings_do_not_matter_and_stay(figure_12):
    matplotlib.rcParams["lines.linewidth"] = 9
    try:
        with theme.style():
            drawn = fig_interleaved.ARTIFACT.draw(fig_interleaved.ARTIFACT, figure_12.record)
            assert lines(drawn)["Interleaved"].get_linewidth() == theme.STYLE["lines.linewidth"]
        assert matplotlib.rcParams["lines.linewidth"] == 9
    finally:
        matplotlib.rcParams["lines.linewidth"] = matplotlib.rcParamsDefault["lines.linewidth"]


def test_points_without_a_result_are_left_out(with_point):
    record = with_point(status="oom", reason="needs more", metrics={})
    drawn = lines(drawn_from(record))
    assert list(drawn["Non-interleaved"].get_xdata()) == [24, 36, 48, 60]
    assert len(drawn["Non-interleaved (paper)"].get_xdata()) == 5


def test_category_axis_has_the_points_labels(figure_12):
    artifact = replace(fig_interleaved.ARTIFACT, x_axis=XAxis("B", "Which", scale="category"))
    figure = drawn_from(figure_12.record, artifact)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [f"B={B}" for B in (12, 24, 36, 48, 60)]
    assert list(lines(figure)["Interleaved"].get_xdata()) == [0, 1, 2, 3, 4]


def test_fig_bubble_is_over_log2():
    record = read_record(ROOT / "results" / "reference" / "fig_bubble" / "derived" / "record.json")
    axes = drawn_from(record, fig_bubble.ARTIFACT).axes[0]
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4", "8", "16", "32", "64"]
    assert axes.get_ylabel() == "Pipeline bubble size"
    assert len(axes.lines) == 8


@pytest.mark.slow
def test_files_are_the_same_bytes_in_another_process_without_what_is_slow_to_import(figure_12, tmp_path):
    code = (
        "import sys\n"
        "from reproduce.cli import main\n"
        f"assert main(['fig_interleaved', '--json', '--results', {str(tmp_path)!r}]) == 0\n"
        "assert not {'torch', 'seaborn', 'scipy'} & set(sys.modules)\n"
    )
    python("-c", code, env={"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"})
    for name in ("figure.pdf", "figure.png", "table.md", "table.tex", "table.csv"):
        again = tmp_path / "fig_interleaved" / "simulated" / name
        assert again.read_bytes() == (figure_12.plan.folder / name).read_bytes(), name
    pdf = (figure_12.plan.folder / "figure.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    assert b"/Type3" not in pdf


def test_points_out_of_memory_are_marked(with_point):
    record = with_point(status="oom", reason="needs more", metrics={})
    figure = drawn_from(record)
    cross = lines(figure)["Non-interleaved (out of memory)"]
    assert (list(cross.get_xdata()), list(cross.get_ydata()), cross.get_marker()) == ([12], [1.03], "x")
    assert cross.get_transform() == figure.axes[0].get_xaxis_transform()  # above the axes, at no throughput
    assert cross.get_color() == lines(figure)["Non-interleaved"].get_color()
    assert "out of memory" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert "out of memory" not in [text.get_text() for text in figure.axes[0].texts]


def test_what_crosses_are_stands_left_of_them_where_there_is_room(figure_12):
    last = {id(p) for p in figure_12.record.points if p.series == "Non-interleaved" and p.parameters["B"] >= 48}
    out = [replace(p, status="oom", reason="needs more", metrics={}) for p in figure_12.record.points if id(p) in last]
    kept = [p for p in figure_12.record.points if id(p) not in last]
    figure = drawn_from(replace(figure_12.record, points=(*kept, *out)))
    figure.draw_without_rendering()
    assert "out of memory" not in [text.get_text() for text in figure.legends[0].get_texts()]
    (text,) = (text for text in figure.axes[0].texts if text.get_text() == "out of memory")
    cross = lines(figure)["Non-interleaved (out of memory)"].get_window_extent()
    assert text.get_window_extent().x1 < cross.x0
    assert text.get_window_extent().x0 > figure.axes[0].get_window_extent().x0


@pytest.mark.parametrize("id", ["fig_context_vs_sequence", "fig_zero3"])
def test_what_an_interrupted_run_has_is_drawn_without_the_panels_that_it_has_no_points_of(id):
    record = read_record(ROOT / "results" / "reference" / id / "simulated" / "record.json")
    figure = drawn_from(replace(record, points=record.points[:1], state="partial"), catalog.load(id))
    ours = [line for axes in figure.axes for line in axes.lines if "(" not in line.get_label()]
    assert [line.get_xdata().tolist() for line in ours] == [
        [record.points[0].parameters[catalog.load(id).x_axis.parameter]]
    ]
    assert figure.axes[0].get_ylabel()


def test_looks_of_a_series(figure_12):
    artifact = replace(fig_interleaved.ARTIFACT, looks={"Interleaved": {"color": "#123456", "linestyle": ":"}})
    drawn = lines(drawn_from(figure_12.record, artifact))
    assert (drawn["Interleaved"].get_color(), drawn["Interleaved"].get_linestyle()) == ("#123456", ":")
    assert drawn["Interleaved (paper)"].get_markeredgecolor() == "#123456"
    assert drawn["Non-interleaved"].get_linestyle() == "-"


def test_names_stand_at_the_ends_of_their_lines_and_the_legend_says_the_rest(figure):
    figure.draw_without_rendering()
    axes = figure.axes[0]
    names = {text.get_text(): text for text in axes.texts}
    assert set(names) == {"Non-interleaved", "Interleaved"}
    assert all(names[name].get_color() == lines(figure)[name].get_color() for name in names)
    boxes = [name.get_window_extent() for name in names.values()]
    assert not boxes[0].overlaps(boxes[1])
    assert all(figure.bbox.x1 >= box.x1 and box.x0 > axes.transData.transform((60, 0))[0] for box in boxes)
    assert [text.get_text() for text in figure.legends[0].get_texts() if text.get_text()] == ["paper", "90% interval"]


def test_names_that_end_together_or_are_long_stay_in_the_legend(figure_12):
    above = {p.parameters["B"]: p.metrics for p in figure_12.record.points if p.series == "Interleaved"}
    together = tuple(replace(p, metrics=above[p.parameters["B"]]) for p in figure_12.record.points)
    long = tuple(replace(p, series=p.series + " 1F1B, v = 2") for p in figure_12.record.points)
    for points in (together, long):
        drawn = drawn_from(replace(figure_12.record, points=points))
        drawn.draw_without_rendering()
        texts = {text.get_text(): text.get_window_extent() for text in drawn.legends[0].get_texts()}
        assert not drawn.axes[0].texts
        assert {point.series for point in points} <= set(texts)
        assert len({round(box.y0) for box in texts.values()}) == 2


def test_a_lone_series_says_where_it_is_farther_off_than_its_tolerance(figure_12):
    points = tuple(p for p in figure_12.record.points if p.series == "Interleaved")
    lone = replace(figure_12.record, points=points)
    assert not drawn_from(lone).axes[0].texts  # at most 1.7% off
    strict = replace(fig_interleaved.ARTIFACT, tolerance=0.015)
    assert [text.get_text() for text in drawn_from(lone, strict).axes[0].texts] == ["+2%"]


def test_long_lines_of_the_foot_stay_in_the_figure():
    with theme.style():
        figure = theme.new_figure()
        theme.add_origin(figure, ["of which come out reversed: " + "improves throughput, " * 6, "short"])
        figure.draw_without_rendering()
        (foot,) = (text for text in figure.texts if text.get_gid() == theme.ORIGIN)
        box = foot.get_window_extent()
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        lines = foot.get_text().splitlines()
        assert (len(lines), lines[-1]) == (3, "short")


def test_names_that_begin_alike_are_shortened_after_the_first():
    assert figures.shortened(["b = 1", "b = 2", "b = 12"]) == ["b = 1", "2", "12"]
    assert figures.shortened(["p = 1", "p = 2, 1F1B"]) == ["p = 1", "p = 2, 1F1B"]
    assert figures.shortened(["b = 1", "t = 2"]) == ["b = 1", "t = 2"]
    assert figures.shortened(["GPipe", "1F1B"]) == ["GPipe", "1F1B"]


def test_a_series_under_another_one_is_broader(figure_12):
    above = {p.parameters["B"]: p.metrics for p in figure_12.record.points if p.series == "Interleaved"}
    points = tuple(replace(p, metrics=above[p.parameters["B"]]) for p in figure_12.record.points)
    drawn = lines(drawn_from(replace(figure_12.record, points=points)))
    assert drawn["Non-interleaved"].get_linewidth() > 2 * drawn["Interleaved"].get_linewidth()
    assert drawn["Non-interleaved"].get_markersize() > drawn["Interleaved"].get_markersize()


@pytest.mark.parametrize(
    ("places", "empty"),
    [((12, 24, 36, 48, 60), False), ((12, 24, 36, 48, 60, 120), True), ((8, 16, 24), False), ((4, 8, 16), True),
     ((0, 1, 100), False), ((5,), False)],
)  # fmt: skip
def test_an_axis_half_empty_is_logarithmic(places, empty):
    assert figures._half_empty(places) == empty


def test_a_band_spans_the_intervals(figure, figure_12):
    first = figure_12.record.points[0].metrics["throughput_per_gpu"]
    assert first.interval.low < first.value < first.interval.high
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    for end in (first.interval.low, first.interval.high):
        assert min(abs(heights - end / 1e12)) < 1e-9


def test_bars_span_most_samples(with_point):
    samples = tuple(80e12 + 1e12 * i for i in range(11))
    record = with_point(metrics={"throughput_per_gpu": Metric(85e12, "FLOP/s", "measured", samples)})
    record = replace(record, fidelity="measured")
    axes = drawn_from(record).axes[0]
    spans = [segment[:, 1].tolist() for each in axes.collections for segment in each.get_segments() if segment.size]
    assert [81.0, 89.0] in spans
    assert lines(axes.figure)["Non-interleaved"].get_ydata()[0] == 85.0


def test_legends_have_as_few_rows_as_fit():
    assert theme.legend_columns(["B = 8", "B = 128", "B = 512"]) == [["B = 8"], ["B = 128"], ["B = 512"]]
    assert theme.legend_columns(["x" * 60, "y" * 60]) == [["x" * 60, "y" * 60]]
    two_rows = [["Unoptimized", "Scatter/gather optimization"], ["third", ""]]
    assert theme.legend_columns(["Unoptimized", "Scatter/gather optimization", "third"]) == two_rows


def test_a_legends_second_part_begins_a_row_unless_this_costs_one():
    assert theme.legend_columns(["a", "b"], below=["paper", "predicted"]) == [["a"], ["b"], ["paper"], ["predicted"]]
    columns = theme.legend_columns(["a", "b"], below=["paper", "out of memory", "predicted"])
    assert columns == [["a", "paper"], ["b", "out of memory"], ["", "predicted"]]
    a, b = "a" * 20, "b" * 20
    assert theme.legend_columns([a, b], below=["c", "d"]) == [[a, "c"], [b, "d"]]
    assert theme.legend_columns([a, b], below=["c", "d", "e"]) == [[a, b], ["c", "d"], ["e", ""]]


def test_a_caption_says_what_the_figure_leaves_out(figure_12):
    look = theme.FigureLook(formats=("png", "svg"), captioned=True)
    files = figures.render(fig_interleaved.ARTIFACT, figure_12.record, look, "figure_paper")
    assert set(files) == {"figure_paper.txt", "figure_paper.csv", "figure_paper.png", "figure_paper.svg"}
    caption = files["figure_paper.txt"].decode()
    assert caption.startswith("Figure 12: Interleaved versus non-interleaved schedule")
    assert "simulated: ptdp on Selene model; paper's values: plot. mean error" in caption
    whole = figures.render(fig_interleaved.ARTIFACT, figure_12.record, theme.FigureLook(formats=("png",)))
    assert size(files["figure_paper.png"])[1] < size(whole["figure.png"])[1]
    assert size(files["figure_paper.png"])[0] == size(whole["figure.png"])[0]


def size(png):
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(("width", "pixels"), [(theme.COLUMN, 999), (theme.PAGE, 2100), (5.0, 1500), (None, 999)])
def test_figures_are_as_wide_as_asked_for(figure_12, width, pixels):
    look = theme.FigureLook(width=width, formats=("png",))
    (png,) = figures.render(fig_interleaved.ARTIFACT, figure_12.record, look).values()
    assert size(png)[0] == pixels


def test_a_serif_figure_has_no_other_letters(figure_12):
    (pdf,) = figures.render(
        fig_interleaved.ARTIFACT, figure_12.record, theme.FigureLook(font="serif", formats=("pdf",))
    ).values()
    assert b"STIXGeneral" in pdf
    assert b"DejaVu" not in pdf


def test_pgf_without_latex_is_an_error_of_this_machine(figure_12, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UnavailableError, match="pgf needs xelatex"):
        figures.render(fig_interleaved.ARTIFACT, figure_12.record, theme.FigureLook(formats=("pgf",)))


def test_an_overlay_has_every_result_and_the_paper_once(figure_12, with_point):
    other = with_point(metrics={"throughput_per_gpu": Metric(50e12, "FLOP/s", "simulated")})
    with theme.style():
        figure = figures.overlay(fig_interleaved.ARTIFACT, {"selene": figure_12.record, "mine": other})
    drawn = [line for line in figure.axes[0].lines if line.get_label() == "Non-interleaved"]
    assert sorted(line.get_ydata()[0] for line in drawn) == [50.0, pytest.approx(81.7, abs=1)]
    assert len({line.get_linestyle() for line in drawn}) == 2
    assert len({line.get_color() for line in drawn}) == 1
    assert [line.get_label() for line in figure.axes[0].lines].count("Non-interleaved (paper)") == 1
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {text for text in texts if text} == {*SERIES, "selene", "mine", "paper", "90% interval"}
    with pytest.raises(ValueError, match="at most 4"):
        figures.overlay(fig_interleaved.ARTIFACT, {str(i): figure_12.record for i in range(5)})


def test_a_cpu_run_that_reverses_the_paper_says_so():
    record = read_record(ROOT / "results" / "reference" / "fig_interleaved" / "measured" / "record.json")
    figure = drawn_from(record, fig_interleaved.ARTIFACT.at(record.scale))
    foot = figure._supxlabel.get_text()
    assert "no test of the paper's claims for GPUs,\nof which come out reversed: improves throughput" in foot


def test_predictions_and_series_stand_side_by_side():
    record = read_record(ROOT / "results" / "reference" / "fig_tensor_vs_data" / "emulated" / "record.json")
    figure = drawn_from(record, fig_tensor_vs_data.ARTIFACT.at(record.scale))
    figure.draw_without_rendering()
    drawn = lines(figure)
    names = list(dict.fromkeys(point.series for point in record.points))
    places = [drawn[name].get_transform().transform(drawn[name].get_xydata())[0, 0] for name in names]
    gap = figures.SIDE_BY_SIDE / 72 * figure.dpi
    assert [after - before for before, after in pairwise(places)] == pytest.approx([gap] * (len(names) - 1))
    for name, place in zip(names, places, strict=True):
        bars = drawn[f"{name} (predicted)"]
        assert bars.get_transform().transform(bars.get_xydata())[0, 0] == pytest.approx(place)
    assert figure.axes[0].bbox.x0 < min(places)


def test_a_difference_too_small_to_show_is_not_called_zero():
    record = read_record(ROOT / "results" / "reference" / "fig_model_trend" / "derived" / "record.json")
    assert "at most 0.01% off on 4 published points" in chart.origin_lines(fig_model_trend.ARTIFACT, record)


def test_ticks_too_close_to_be_read_lose_their_label():
    assert figures._apart([384, 560, 640, 768, 2240], ["a", "b", "c", "d", "e"]) == ["a", "b", "", "d", "e"]
    assert figures._apart([640, 384, 560, 2240], ["c", "a", "b", "e"]) == ["", "a", "b", "e"]


def test_a_figure_is_laid_out_once_and_drawn_once_for_each_format(figure_12, monkeypatch):
    counts = Counter()

    def counted(owner, name):
        function = getattr(owner, name)

        def count(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, count)

    with theme.style():
        drawn = drawn_from(figure_12.record)
        counted(Figure, "draw")
        counted(ConstrainedLayoutEngine, "execute")
        theme.figure_files(drawn, "Figure 12", look=theme.FigureLook(formats=("pdf", "png", "svg")))
    assert counts == {"draw": 3, "execute": 1}


def test_fonts_in_a_pdf_have_their_letters_but_no_tables_to_lay_out_text(figure_12):
    with theme.style():
        drawn = drawn_from(figure_12.record)
        pdf = theme.figure_bytes(drawn, "pdf", "Figure 12")
    streams = re.findall(rb"/Length1 \d+[^>]*>>\nstream\n(.*?)\nendstream", pdf, re.DOTALL)
    fonts = [TTFont(BytesIO(zlib.decompress(stream))) for stream in streams]
    assert fonts
    for font in fonts:
        assert {"glyf", "hmtx", "fpgm"} <= set(font.keys())
        assert not set(theme.LAYOUT_TABLES) & set(font.keys())
        assert len(font.getGlyphOrder()) > 40
    assert set(theme.LAYOUT_TABLES).isdisjoint(Options().drop_tables)  # other users of the library get theirs


def test_drawing_a_line_chart_takes_no_pandas():
    script = (
        "import sys; from results import ROOT; from results.records import read_record; "
        "from reproduce.papers.sc21.fig_interleaved import ARTIFACT; from reproduce.output.figures import render; "
        "render(ARTIFACT, read_record(ROOT / 'results/reference/fig_interleaved/simulated/record.json')); "
        "print('matplotlib' in sys.modules, 'pandas' in sys.modules)"
    )
    assert python("-c", script).stdout == "True False\n"
