"""The Python interface: light to import, and the same answers as the command line's."""

import subprocess
import sys

import pytest

import ptdp
import reproduce
from reproduce.analysis.planning.search import NEAR_TIE
from results import ROOT
from results.records.errors import InvalidResultsError, NothingSelectedError, UsageError

HEAVY = "{'pandas', 'seaborn', 'matplotlib', 'torch', 'numpy', 'rich', 'reproduce.interface'}"
GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 12}


@pytest.mark.parametrize(
    "code",
    [
        "import reproduce",
        "import ptdp",
        "from reproduce.cli import main; main(['list'])",
        "from reproduce.cli import main; main(['describe', 'fig_zero3'])",
        "from reproduce.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_what_is_light_imports_nothing_of_it(code: str) -> None:
    check = f"{code}\nimport sys; sys.exit(', '.join({HEAVY} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_names_are_there_and_no_others() -> None:
    assert set(reproduce.__all__) <= set(dir(reproduce))
    assert callable(reproduce.run)
    with pytest.raises(AttributeError, match="no attribute 'sumulate'"):
        reproduce.sumulate  # noqa: B018


def test_ptdp_has_the_same_names() -> None:
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
