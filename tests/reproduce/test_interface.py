"""The Python interface: light to import, and the same answers as the command line's."""

import pytest
from matplotlib.text import Text

import ptdp
import reproduce
from reproduce.output import theme
from reproduce.planning.search import NEAR_TIE
from reproduce.planning.what_if import evaluate
from results import ROOT
from results.records import read_record
from results.records.errors import InvalidResultsError, NothingSelectedError, UsageError

REFERENCE = ROOT / "results" / "reference"
GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 12}


def test_the_names_are_there_and_no_others():
    assert set(reproduce.__all__) <= set(dir(reproduce))
    assert callable(reproduce.run)
    with pytest.raises(AttributeError, match="no attribute 'sumulate'"):
        reproduce.sumulate  # noqa: B018


def test_ptdp_has_the_same_names():
    assert set(ptdp.__all__) == set(reproduce.__all__)
    assert all(getattr(ptdp, name) is getattr(reproduce, name) for name in ptdp.__all__)
    with pytest.raises(AttributeError, match="module 'ptdp' has no attribute 'sumulate'"):
        ptdp.sumulate  # noqa: B018


def test_run_is_the_commands_run(tmp_path, figure_12):
    record = reproduce.run("fig_interleaved", results=tmp_path)
    assert record.points == figure_12.record.points
    assert record.claims == figure_12.record.claims
    folder = tmp_path / "fig_interleaved" / "simulated"
    assert {path.name for path in folder.iterdir()} == {path.name for path in figure_12.files}
    loaded = reproduce.load("fig_interleaved", results=tmp_path)
    assert loaded.equals(record.frame())
    assert loaded.equals(reproduce.load([folder, folder / "record.json"]))  # each file once


def test_a_record_draws_its_figure(tmp_path):
    figure = reproduce.run("fig_interleaved", results=tmp_path).figure()
    assert figure.axes[0].get_xlabel() == "Batch size (sequences)"
    with pytest.raises(UsageError, match="simulate has no figure"):
        reproduce.simulate(GPT3).figure()


def test_a_figure_in_another_style_font_and_width():
    record = reproduce.Record.of(read_record(REFERENCE / "fig_interleaved" / "simulated" / "record.json"))
    usual, paper = record.figure(), record.figure(style="paper", font="serif", width="page")
    assert (usual.get_figwidth(), paper.get_figwidth()) == (theme.COLUMN, theme.PAGE)
    of_usual, of_paper = (
        [text.get_text() for text in each.findobj(Text) if text.get_gid() == theme.ORIGIN] for each in (usual, paper)
    )
    assert "Selene" in of_usual[0]
    assert of_paper == [""]
    assert record.figure(width=5.5).get_figwidth() == 5.5
    for options, words in (
        ({"style": "papre"}, "did you mean 'paper'"),
        ({"font": "comic"}, "there are sans, serif"),
        ({"width": "colunm"}, "needs column, page or inches"),
        ({"width": 100}, "needs 2 to 20 inches"),
    ):
        with pytest.raises(UsageError, match=words):
            record.figure(**options)


def test_a_frame_in_the_units_that_tables_show():
    record = reproduce.Record.of(read_record(REFERENCE / "fig_interleaved" / "simulated" / "record.json"))
    base, shown = (record.frame(shown_units=asked).set_index(["key", "metric"]) for asked in (False, True))
    for metric, unit, factor in (
        ("throughput_per_gpu", "teraFLOP/s", 1e12), ("peak_memory", "GB", 1e9), ("bubble_fraction", "%", 0.01),
        ("iteration_time", "s", 1), ("sequences_per_s", "sequences/s", 1),
    ):  # fmt: skip
        rows = slice(None), metric
        assert set(shown.loc[rows, "unit"]) == {unit}
        numbers = ["value", "low", "high", "paper"]
        assert shown.loc[rows, numbers].equals(base.loc[rows, numbers] / factor)
    assert list(base.columns) == list(shown.columns)


def test_a_notebook_shows_a_record_as_its_table():
    shown = reproduce.Record.of(read_record(REFERENCE / "fig_interleaved" / "simulated" / "record.json"))._repr_html_()
    assert "Figure 12" in shown.splitlines()[0]
    assert shown.count("<tr>") == 1 + 10
    assert "paper (teraFLOP/s) [plot]" in shown
    simulated = reproduce.simulate({"label": "a <b>"}, {"b": 7}, **GPT3)._repr_html_()
    assert "iteration (s)" in simulated
    assert "a &lt;b&gt;" in simulated
    assert "<p>configuration 2: invalid: " in simulated


def test_simulate_agrees_with_the_artifact(figure_12):
    first = figure_12.record.points[0]
    record = reproduce.simulate({"v": 1}, {"v": 4, "b": 7, "label": "seven"}, **GPT3)
    ok, invalid = record.points
    model_rates = {name: metric for name, metric in ok.metrics.items() if name.startswith("model_")}
    assert ok.metrics == {**first.metrics, **model_rates}
    assert model_rates.keys() == {"model_throughput_per_gpu", "model_flops_utilization"}
    assert (invalid.label, invalid.status) == ("seven", "invalid")
    assert "b=7" in str(invalid.reason)
    assert reproduce.simulate(**GPT3, v=1).points[0].metrics == ok.metrics
    (long,) = reproduce.simulate({**GPT3, "B": 10**7, "schedule": "gpipe"}).points
    assert (long.status, "passes to execute; needs at most" in str(long.reason)) == ("invalid", True)


def test_plan_has_the_papers_configuration_among_the_ranked():
    record = reproduce.plan("1.7b", top=2)
    assert [point.parameters["rank"] for point in record.points][:2] == [1, 2]
    times = [point.metrics["iteration_time"].value for point in record.points]
    assert times[0] <= min(times) * (1 + NEAR_TIE)
    assert all("model_flops_utilization" in point.metrics for point in record.points)
    assert record.frame().paper.count() == 1


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: reproduce.load("fig_interleave"), UsageError, "did you mean 'fig_interleaved'"),
        (lambda: reproduce.load("fig_interleaved", results=ROOT / "paper"), NothingSelectedError, "has no record"),
        (lambda: reproduce.load(ROOT / "paper" / "published.json"), (UsageError, InvalidResultsError), "published"),
        (lambda: reproduce.load(ROOT / "pyproject.toml"), InvalidResultsError, "pyproject.toml"),
        (lambda: reproduce.run("fig_interleaved", fidelity="simulate"), UsageError, "unknown fidelity 'simulate'"),
        (lambda: reproduce.run("fig_interleaved", cluster="selen"), UsageError, "selen"),
        (lambda: reproduce.simulate(layers=1), UsageError, "missing 'hidden'"),
        (lambda: reproduce.simulate(hiden=1), UsageError, "did you mean 'hidden'"),
        (lambda: reproduce.plan("1.7b", depth=3), UsageError, "unknown size 'depth'"),
        (lambda: reproduce.plan("1.6b"), UsageError, "unknown model '1.6b'"),
        (lambda: reproduce.plan("175b"), UsageError, "gpus is missing; needs the number of GPUs to plan for"),
        pytest.param(
            lambda: reproduce.plan("175b", gpus=16, batch=192),
            NothingSelectedError,
            "; try gpus=",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_mistake_is_one_line(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_samples_of_mixed_lengths_are_packed_as_on_the_command_line():
    point = {"model": "llama-3-8b", "seq": 8192, "d": 8, "B": 64, "data_parallel": "zero3", "attention": "sdpa"}
    samples = [[500, 800], [3000, 200]]
    record = reproduce.simulate(point, lengths=samples, cluster="h100", recompute="full")
    (asked,) = record.points
    answer = evaluate(point | {"lengths": samples, "recompute": "full"}, 1, "h100")
    assert asked.metrics["iteration_time"].value == answer["iteration_time"]
    assert record.notes[-1] == f"configuration 1: {answer['reason']}"
    with pytest.raises(UsageError, match="a sample of 9000 tokens with seq=8192"):
        reproduce.simulate(point, lengths=[9000], cluster="h100")


def test_what_does_not_fit_says_what_would():
    point = {"model": "llama-3-8b", "t": 8, "B": 16, "b": 16, "attention": "sdpa", "recompute": "none"}
    (asked,) = reproduce.simulate(point, cluster="h100").points
    assert asked.status == "oom"
    assert asked.reason == evaluate(point, 1, "h100")["reason"]


def test_a_training_program_can_be_named_in_each_configuration_or_for_a_plan():
    sizes = {"layers": 16, "hidden": 2048, "heads": 16, "d": 8, "B": 64, "program": "nemo"}
    named, torchtitan = reproduce.simulate(sizes, sizes | {"program": "torchtitan"}, cluster="h100").points
    assert named.metrics["iteration_time"].value < torchtitan.metrics["iteration_time"].value
    assert named.parameters["program"] == "nemo"
    lacking = reproduce.simulate(sizes | {"p": 2, "program": "llm-foundry"}, cluster="h100").points[0]
    assert lacking.status == "invalid"
    assert lacking.reason.startswith("p=2 with program='llm-foundry', which has no pipeline")
    with pytest.raises(UsageError, match="program='nemoo' is unknown"):
        reproduce.simulate(sizes | {"program": "nemoo"})
    with pytest.raises(UsageError, match="program='nemoo' is unknown"):
        reproduce.plan("1.7b", gpus=8, batch=64, cluster="h100", program="nemoo")


def test_what_a_plan_searches_can_be_named():
    sizes = {"layers": 4, "hidden": 1024, "heads": 8, "gpus": 4, "batch": 8, "cluster": "h100"}
    (point, *_) = reproduce.plan(**sizes, top=1, allow=["mxfp8"], forbid=["zero3", "pipeline"]).points
    assert point.parameters["fp8_recipe"] == "mxfp8"
    assert (point.parameters["p"], point.parameters["data_parallel"] != "zero3") == (1, True)
