"""`reproduce plot`: figures of benchmarks say what their records say; those of artifacts are as their runs drew."""

from datetime import UTC, datetime
from io import StringIO

import pytest
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from pandas import read_csv

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, NOT_QUIET, record_path
from benchmarks.harness.points import size_text
from reproduce.annex.bench import benchmark_figures
from reproduce.annex.plot.own_points import read_points
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.interface import Record as OwnRecord
from reproduce.output import figures, theme
from reproduce.output.chart import origin_lines
from reproduce.output.tables import csv_text
from reproduce.papers.sc21 import fig_interleaved
from results import ROOT
from results.records import Metric, Record, errors, read_record, write_record
from results.records.provenance import collect
from tests.points import made


def measured(unit, *samples):
    return Metric(sorted(samples)[len(samples) // 2], unit, "measured", samples)


def make_point(key, series, label, parameters, metrics, status="ok"):
    known = {"device": "cpu", **parameters}
    return made(key, metrics if status == "ok" else {}, status, series=series, label=label, **known)


def record(name, points, notes=()):
    canary = make_point("canary/before", CANARY, "before", {}, {"time": measured("s", 99.0)})
    return Record(
        kind="benchmark",
        id=name,
        title="A benchmark",
        paper=None,
        fidelity="measured",
        scale="quick",
        state="complete",
        provenance=collect(("benchmarks",), datetime(2021, 11, 14, 9, tzinfo=UTC), 1.0, 0),
        points=(*points, canary),
        notes=tuple(notes),
    )


def curve_record(notes=(), sizes=(1024, 4096, 2**20)):
    points = [
        make_point(
            f"{series}/{size}",
            series,
            str(size),
            {"bytes": size, "ranks": 2},
            {"bandwidth": measured("B/s", size * 0.9e3 * k, size * 1e3 * k, size * 1.1e3 * k)},
        )
        for k, series in enumerate(("one way", "exchange"), 1)
        for size in sizes
    ]
    return record("p2p", [*points, make_point("exchange/x", "exchange", "x", {"bytes": 1}, {}, "failed")], notes)


def bars_record():
    points = [
        make_point(f"{s}/{n}", s, n, {}, {"time": measured("s", 0.8 * v, v, 1.4 * v)})
        for s, n, v in (("fp32", "d=1", 1e-3), ("fp32", "d=2", 2e-3), ("bf16", "d=1", 3e-3), ("bf16", "d=2", 4e-3))
    ]
    return record("optimizer_step", points)


@pytest.fixture(autouse=True)
def styled():
    with theme.style():
        yield


def test_curves_are_the_record():
    figure = benchmark_figures.draw(curve_record())
    (axes,) = figure.axes
    for k, (line, name) in enumerate(zip(axes.lines, ("one way", "exchange"), strict=True), 1):
        assert line.get_label() == name
        assert list(line.get_xdata()) == [1024, 4096, 2**20]
        assert list(line.get_ydata()) == pytest.approx([size * 1e3 * k / 1e9 for size in (1024, 4096, 2**20)])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1 KiB", "4 KiB", "1 MiB"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("message size", "bandwidth (GB/s)")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one way", "exchange"]
    assert figure.get_figwidth() == theme.COLUMN


@pytest.mark.parametrize(("sizes", "scale"), [((1024, 2**20), "log"), ((1024, 2048, 4096), "linear")])
def test_only_values_far_apart_are_on_a_logarithmic_axis(sizes, scale):
    (axes,) = benchmark_figures.draw(curve_record(sizes=sizes)).axes
    assert axes.get_yscale() == scale
    assert scale == "log" or axes.get_ylim()[0] == 0


def test_bars_are_the_record():
    figure = benchmark_figures.draw(bars_record())
    (axes,) = figure.axes
    widths = {(bar.get_facecolor(), round(bar.get_width(), 9)) for bar in axes.patches}
    assert sorted(width for _, width in widths) == [1, 2, 3, 4]
    assert len({color for color, _ in widths}) == 2
    assert [text.get_text() for text in axes.get_yticklabels()] == ["d=1", "d=2"]
    low, high = axes.lines[0].get_xdata()
    assert (low, high) == (pytest.approx(0.84), pytest.approx(1.32))  # a tenth and nine tenths of 0.8, 1, 1.4 ms
    assert axes.get_xlabel() == "time of a step (ms)"


def test_the_small_print_says_origin_host_and_disturbance():
    lines = benchmark_figures.origin_lines(curve_record())
    host = curve_record().provenance.host
    assert lines[0].startswith("measured by ptdp, quick run, torch")
    assert (host.cpu or host.machine) in lines[1]
    assert NOT_QUIET.upper() not in lines
    assert benchmark_figures.origin_lines(curve_record([f"{NOT_QUIET}: x."]))[-1] == NOT_QUIET.upper()


def test_every_benchmark_has_a_figure_of_a_column_s_width():
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.panels or name == "fused_kernels"
        for row in benchmark.panels:
            assert benchmark_figures.Panel(**row).metric in benchmark.columns


def fused_record():
    points = [
        make_point(
            f"{operator}/{model}/{series}",
            series,
            operator,
            {"model": model},
            {
                f"{way}_{what}": Metric(0.5, unit, "derived")
                for way in ("forward", "backward")
                for what, unit in (("time", "s"), ("share_of_copy", "1"))
                if operator != "attention" or what == "time"
            },
        )
        for model in ("175B", "530B")
        for operator, several in (("bias_gelu", ("reference", "compiled")), ("attention", ("sdpa", "[s, b, a, h]")))
        for series in several
    ]
    copy = make_point("copy", "copy", "copy", {}, {"bandwidth": measured("B/s", 1e9)})
    return record("fused_kernels", [*points, copy])


def test_fused_kernels_show_both_models_both_ways_and_the_layouts():
    figure = benchmark_figures.draw(fused_record())
    titles = [axes.get_title() for axes in figure.axes]
    ways = ("forward", "backward")
    assert titles == [f"{what}, {way}" for what in ("175B", "530B", "attention") for way in ways]
    assert figure.get_figwidth() == theme.PAGE
    shares = [bar.get_width() for bar in figure.axes[0].patches]
    assert shares == [pytest.approx(50), pytest.approx(50)]
    assert [len(axes.patches) for axes in figure.axes] == [2, 2, 2, 2, 4, 4]


def test_plot_writes_next_to_the_record_and_the_same_bytes_again(tmp_path, said):
    path = record_path(tmp_path, "p2p")
    write_record(curve_record(), path)
    files = [path.with_name(f"figure.{kind}") for kind in ("pdf", "png")]
    assert said("plot", "p2p", "--results", tmp_path).splitlines() == list(map(str, files))
    once = [file.read_bytes() for file in files]
    said("plot", "--results", tmp_path)
    assert [file.read_bytes() for file in files] == once


@pytest.mark.slow
def test_plot_draws_an_artifact_as_its_run_did(tmp_path, said):
    said("fig_bubble", "--results", tmp_path)
    picture = tmp_path / "fig_bubble" / "derived" / "figure.png"
    drawn = picture.read_bytes()
    picture.unlink()
    assert str(picture) in said("plot", "fig_bubble", "--results", tmp_path)
    assert picture.read_bytes() == drawn


def test_a_record_that_is_none_is_an_error_and_stays(tmp_path, refused):
    path = record_path(tmp_path, "gemm")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert str(path) in refused("plot", "gemm", "--results", tmp_path, code=errors.INVALID_RESULTS)
    assert path.read_text() == "{}"


def test_a_record_without_measurements_has_no_figure(tmp_path, refused):
    write_record(record("p2p", [make_point("a", "a", "a", {}, {}, "skipped")]), record_path(tmp_path, "p2p"))
    assert "nothing" in refused("plot", "p2p", "--results", tmp_path, code=errors.NOTHING_SELECTED)


def test_sizes_as_text():
    assert [size_text(size) for size in (1, 4096, 3 * 2**19, 2**30)] == ["1 B", "4 KiB", "1.5 MiB", "1 GiB"]


@pytest.fixture
def figure_12_twice(tmp_path, figure_12):
    """Two results folders, before and after, with Figure 12."""
    for name in ("before", "after"):
        folder = tmp_path / name / "fig_interleaved" / "simulated"
        folder.mkdir(parents=True)
        (folder / "record.json").write_bytes((figure_12.plan.folder / "record.json").read_bytes())
    return tmp_path


def test_for_a_paper_there_is_a_caption_beside(figure_12_twice, said):
    results = figure_12_twice / "before"
    options = ["--for", "paper", "--format", "svg,png", "--width", "column", "--font", "serif"]
    folder = results / "fig_interleaved" / "simulated"
    written = [folder / f"figure_paper.{kind}" for kind in ("txt", "csv", "svg", "png")]
    assert said("plot", "fig_interleaved", "--results", results, *options).splitlines() == list(map(str, written))
    assert "ptdp on Selene model" in written[0].read_text()
    assert "ptdp on Selene model" not in written[2].read_text()


@pytest.mark.parametrize("place", theme.VENUES)
def test_for_a_venue_a_figure_has_its_widths_and_letters_and_the_numbers_are_beside(place, figure_12_twice, figure_12):
    results = figure_12_twice / "before"
    arguments = ["plot", "fig_interleaved", "--for", place, "--format", "svg", "--results", str(results)]
    assert main(arguments) == 0
    folder = results / "fig_interleaved" / "simulated"
    drawing = (folder / f"figure_{place}.svg").read_text()
    venue = theme.VENUES[place]
    assert f'width="{72 * venue.column:g}pt"' in drawing
    with theme.style(theme.FigureLook(font="serif", venue=venue)):
        figure = fig_interleaved.ARTIFACT.draw(fig_interleaved.ARTIFACT, figure_12.record)
        assert theme.figure_width(theme.PAGE) == venue.page
    axes = figure.axes[0]
    assert {axes.xaxis.label.get_fontsize(), axes.yaxis.label.get_fontsize()} == {venue.labels}
    ticks = [*axes.get_xticklabels(), *axes.get_yticklabels(), *figure.legends[0].get_texts()]
    assert {text.get_fontsize() for text in ticks} == {venue.small}
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().x1 <= figure.bbox.x1
    numbers = read_csv(folder / f"figure_{place}.csv")
    shown = numbers[numbers.metric == "throughput_per_gpu"].set_index("key").value.to_dict()
    assert shown == {p.key: p.metrics["throughput_per_gpu"].value for p in figure_12.record.points}


@pytest.mark.parametrize(
    "place", ["after", "after/fig_interleaved/simulated", "after/fig_interleaved/simulated/record.json"]
)
def test_results_over_each_other(figure_12_twice, said, place):
    results = figure_12_twice / "before"
    command = ("plot", "fig_interleaved", "--results", results, "--with", figure_12_twice / place, "--format", "svg")
    assert said(*command) == f"{results / 'fig_interleaved' / 'simulated' / 'overlay.svg'}\n"


OWN = "series, x, value, low, high\nInterleaved, 12, 110, 105, 118\nInterleaved, 60, 139,,\nmine too, 30, 90, 80, 95\n"


def test_points_of_one_s_own_are_drawn_with_the_series_colour(figure_12, figure_12_twice, said):
    path = figure_12_twice / "cluster_a.csv"
    path.write_text(OWN)
    results = figure_12_twice / "before"
    command = ("plot", "fig_interleaved", "--points", path, "--results", results, "--format", "svg")
    assert said(*command) == f"{results / 'fig_interleaved' / 'simulated' / 'overlay.svg'}\n"
    record, artifact = figure_12.record, catalog.load("fig_interleaved").at("paper")
    figure = figures.overlay(artifact, {"simulated": record}, {"cluster_a": read_points(path, artifact, record)})
    axes, simulated = figure.axes[0], figures.overlay(artifact, {"simulated": record}).axes[0]
    others = [line for line in axes.lines if not str(line.get_label()).endswith("(paper)")]
    named = [line for line in others if not str(line.get_label()).startswith("_")]
    unjoined = [line for line in named if line.get_linestyle() == "None"]
    assert {line.get_markeredgecolor() for line in unjoined} == {"black"}  # the paper's are hollow
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in unjoined}
    assert drawn == {"Interleaved": ([12, 60], [110, 139]), "mine too": ([30], [90])}
    colours = {line.get_label(): line.get_color() for line in simulated.lines}
    assert {line.get_label(): line.get_color() for line in unjoined}["Interleaved"] == colours["Interleaved"]
    assert {text.get_text() for text in axes.get_xticklabels()} == {"12", "24", "30", "36", "48", "60"}
    assert "cluster_a" in [text.get_text() for text in figure.legends[0].get_texts()]
    said(*command, "--with", figure_12_twice / "after")
    path.write_text(OWN.replace("x, value", "B, throughput_per_gpu"))
    named = read_points(path, artifact, record)
    path.write_text(OWN)
    assert named == read_points(path, artifact, record)
    drawn = OwnRecord.of(record).figure(points=path)
    assert "mine too" in {line.get_label() for line in drawn.axes[0].lines}


@pytest.fixture
def with_own(figure_12, tmp_path):
    """The overlay of figure 12 and of points of one's own, and its files for a venue."""
    path = tmp_path / "mine.csv"
    path.write_text(OWN)
    artifact = catalog.load("fig_interleaved").at("paper")
    records = {"simulated": figure_12.record}
    own = {"our cluster": read_points(path, artifact, figure_12.record)}
    look = theme.FigureLook(formats=("svg",), captioned=True)
    return figures.overlay(artifact, records, own), figures.render_overlay(artifact, records, own, look)


def test_the_numbers_beside_an_overlay_have_one_s_own_points_in_base_units(with_own, figure_12):
    _, files = with_own
    text = files["overlay.csv"].decode()
    assert text.startswith(csv_text(figure_12.record))
    own = read_csv(StringIO(text)).query("origin == 'own points'").astype(object).fillna("")
    assert own[["series", "B", "metric", "value", "unit", "low", "high"]].values.tolist() == [
        ["Interleaved", 12, "throughput_per_gpu", 110e12, "FLOP/s", 105e12, 118e12],
        ["Interleaved", 60, "throughput_per_gpu", 139e12, "FLOP/s", "", ""],
        ["mine too", 30, "throughput_per_gpu", 90e12, "FLOP/s", 80e12, 95e12],
    ]
    assert list(own.key) == ["our cluster/1", "our cluster/2", "our cluster/3"]
    assert ",our cluster/3,mine too," in files["overlay.svg"].decode()


def test_bars_of_one_s_own_points_stand_before_their_markers_with_caps_that_stand_out(with_own):
    axes = with_own[0].axes[0]
    bars = [
        (bar.lines[2][0].get_segments()[0].tolist(), bar.lines[2][0], bar.lines[1])
        for bar in axes.containers
        if isinstance(bar, ErrorbarContainer)
    ]
    assert [ends for ends, *_ in bars] == [[[12, 105], [12, 118]], [[30, 80], [30, 95]]]
    markers = [line for line in axes.lines if line.get_markeredgecolor() == "black" and line.get_label()[0] != "_"]
    for _, bar, caps in bars:
        assert to_hex(bar.get_color()[0]) == "#000000"
        assert bar.get_zorder() > max(line.get_zorder() for line in markers)
        assert all(cap.get_markersize() > 1.5 * markers[0].get_markersize() for cap in caps)
        assert len(caps) == 2


def test_the_legend_shows_one_s_own_points_as_they_are_drawn(with_own):
    (legend,) = with_own[0].legends
    lines = [line for line in legend.findobj(Line2D) if line.get_markeredgecolor() == "black"]
    assert len(lines) == 3  # of "mine too", and two of "our cluster"
    assert {line.get_linestyle() for line in lines} == {"None"}
    assert "our cluster" in [text.get_text() for text in legend.get_texts()]


def test_the_caption_of_an_overlay_is_sentences_with_the_mean_error(with_own, figure_12):
    caption = with_own[1]["overlay.txt"].decode()
    (error,) = [text for text in origin_lines(fig_interleaved.ARTIFACT, figure_12.record) if "mean error" in text]
    assert caption == (
        "Figure 12: Interleaved versus non-interleaved schedule, GPT-3 175B on 96 GPUs (simulated, our cluster). "
        f"The simulated values come from ptdp on the Selene model: {error}. Markers with black edges show our cluster. "
        "Hollow markers are the paper's values, read from its plot.\n"
    )


def test_a_bar_of_one_s_own_may_reach_to_one_side(figure_12, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("series,x,value,low,high\nInterleaved,12,110,105,\nInterleaved,24,120,,125\n")
    artifact = catalog.load("fig_interleaved").at("paper")
    own = {"mine": read_points(path, artifact, figure_12.record)}
    axes = figures.overlay(artifact, {"simulated": figure_12.record}, own).axes[0]
    bars = [bar.lines[2][0] for bar in axes.containers if isinstance(bar, ErrorbarContainer)]
    ends = [bar.get_segments()[0][:, 1].tolist() for bar in bars]
    assert ends == [[105, 110], [120, 125]]


def test_a_figure_s_file_holds_its_numbers_and_says_what_it_shows(figure_12):
    files = figures.render(
        catalog.load("fig_interleaved"), figure_12.record, theme.FigureLook(formats=("svg", "pdf", "png"))
    )
    svg = files["figure.svg"].decode()
    said = "Achieved teraFLOP/s per GPU (eq. 3) over Batch size (sequences): Non-interleaved 82.04 to 133.5;"
    assert said in svg
    assert csv_text(figure_12.record).splitlines()[1] in svg.replace("&quot;", '"').replace("&#10;", "\n")
    assert b"/Keywords" in files["figure.pdf"]
    assert said.encode() in files["figure.png"]


def test_on_an_axis_of_names_a_point_has_one_of_them(tmp_path):
    artifact = catalog.load("fig_tensor_vs_data").at("paper")
    record = read_record(ROOT / "results" / "reference" / "fig_tensor_vs_data" / "simulated" / "record.json")
    label, path = record.points[0].label, tmp_path / "mine.csv"
    path.write_text(f'series,x,value\nmine,"{label}",100\n')
    (mark,) = read_points(path, artifact, record)
    assert mark.at == record.points[0].parameters[artifact.x_axis.parameter]
    path.write_text("series,x,value\nmine,nowhere,100\n")
    with pytest.raises(errors.UsageError, match="line 2: x='nowhere' is not on the axis"):
        read_points(path, artifact, record)
