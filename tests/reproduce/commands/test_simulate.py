"""`reproduce simulate`: the answers, and everything that can be wrong with the file."""

import io
import json
import re

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import cluster_path, load_cluster, simulate
from reproduce.annex.plot import estimate_figure
from reproduce.commands import options
from reproduce.experiment.metrics import answers
from reproduce.output import theme
from results.records import errors
from tests.mistakes import says
from tests.processes import python

GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 24}
NUMBERS = tuple(metric.name for metric in answers())


def test_one_point_may_be_written_out(simulated_points, as_json):
    """Key by key, a text as it stands: the same answer as from a file."""
    point = {
        "model": "llama-3-70b",
        "t": 8,
        "p": 4,
        "B": "1M",
        "seq": 8192,
        "sequence_parallel": True,
        "cluster": "h100",
    }
    words = [f"{name}={str(value).lower() if value is True else value}" for name, value in point.items()]
    assert as_json("simulate", *words)["points"] == simulated_points([point])


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8", 8),
        ("007", 7),
        ("-1", -1),
        ("---5", "---5"),
        ("1.25", 1.25),
        ("true", True),
        ("4M", "4M"),
        ("[[512, 3]]", [[512, 3]]),
    ],
)
def test_the_value_of_a_word_is_read_as_json_or_as_it_stands(word, value):
    assert options.plain_value(word) == value


def test_the_answer_is_the_simulators(simulated_points):
    (answer,) = simulated_points([{**GPT3, "v": 4, "label": "mine"}])
    config = TrainingConfig(ModelConfig(96, 12288, 96), ParallelConfig(p=12, t=8, v=4, B=24))
    estimate = simulate(config, load_cluster(), bubble_times=True)
    assert (answer["label"], answer["status"], answer["reason"], answer["origin"]) == ("mine", "ok", None, "simulated")
    assert answer["iteration_time"] == estimate.iteration_time
    assert answer["throughput_per_gpu"] == estimate.throughput_per_gpu
    assert answer["model_flops_utilization"] == estimate.model_throughput_per_gpu / load_cluster().peak_flops
    assert answer["sequences_per_s"] == estimate.sequences_per_s
    assert answer["bubble_fraction"] == estimate.bubble_fraction
    assert answer["peak_memory"] == estimate.peak_memory
    assert answer["phase_times"] == dict(estimate.phase_times)
    assert answer["memory_bytes"] == dict(estimate.memory_bytes)
    assert answer["traffic"] == dict(estimate.traffic)
    assert answer["bubble_times"] == dict(estimate.bubble_times)
    assert (answer["gpus"], answer["cluster"]) == (96, "selene")


def test_the_table_has_the_columns_chosen(points_file, said, refused):
    path = points_file({**GPT3, "label": "mine"}, {**GPT3, "p": 97})
    printed = said("simulate", path, "--columns", "iteration,point,memory", code=4)
    assert re.search(r"^ *\(s\)  point +\(GB\) *$", printed, re.MULTILINE)
    assert re.search(r"^ *[0-9.]+  mine +[0-9.]+ *$", printed, re.MULTILINE)
    assert re.search(r"^ *-  point 2 +- *$", printed, re.MULTILINE)
    assert "idle by cause" not in printed
    assert "--columns 'memori': the table has no such column; did you mean 'memory'?" in refused(
        "simulate", path, "--columns", "iteration,memori"
    )


def test_a_model_by_name_stands_for_its_fields(simulated_points):
    point = {"model": "llama-3-8b", "t": 8, "d": 8, "B": 128, "attention": "sdpa"}
    fields = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "activation": "swiglu"}
    fields |= {"norm": "rmsnorm", "positions": "rotary", "rope_theta": 5e5, "tied_embeddings": False, "bias": False}
    spelled = {**point, **fields, "seq": 8192, "vocab": 128256}
    del spelled["model"]
    points = [point, {**spelled, "label": "point 1"}, {**point, "seq": 2048}, {**point, "model": "lama-3-8b"}]
    named, written, shorter, unknown = simulated_points(points, code=errors.POINTS_FAILED)
    assert named == written
    assert shorter["sequences_per_s"] > 2 * named["sequences_per_s"]
    assert (unknown["status"], unknown["reason"][:53]) == (
        "invalid",
        "unknown model 'lama-3-8b'; did you mean 'llama-3-8b'?",
    )


def test_what_is_published_somewhere_has_an_interval(simulated_points):
    (answer,) = simulated_points([GPT3])
    assert answer["intervals"].keys() == {metric.name for metric in answers() if metric.margin}
    for name, interval in answer["intervals"].items():
        assert interval["low"] < answer[name] < interval["high"]
    (elsewhere,) = simulated_points([{**GPT3, "cluster": "jean_zay"}])
    assert elsewhere["intervals"] == {}


def test_options_reach_the_simulator(simulated_points):
    variants = [{}, {"scatter_gather": False}, {"recompute": "none"}, {"schedule": "gpipe"}, {"b": 2}, {"seq": 1024}]
    points = [{**GPT3, "d": 2, "data_parallel": kind, **v} for kind in ("local", "torch") for v in variants]
    answers = simulated_points(points)
    assert len({answer["iteration_time"] for answer in answers}) > len(variants)


def test_the_training_program_is_the_clusters_unless_a_point_names_its_own(simulated_points):
    later = {**GPT3, "software": ["overlapped_all_reduce", "fused_accumulation"]}
    own = [GPT3, {**GPT3, "software": []}, later]
    default, of_2021, overlapped = simulated_points(own)
    assert default["iteration_time"] == of_2021["iteration_time"] > overlapped["iteration_time"]
    default, of_2021, _ = simulated_points(own, "--cluster", "a100-80")
    assert default["iteration_time"] < of_2021["iteration_time"]


def test_an_error_of_ours_is_no_invalid_point(simulated_points, monkeypatch):
    def broken(*arguments, **options):
        raise ValueError("unit='furlong' is unknown")

    monkeypatch.setattr("reproduce.planning.what_if.simulate", broken)
    (answer,) = simulated_points([GPT3], code=errors.POINTS_FAILED)
    assert answer["status"] == "failed"
    assert answer["reason"].startswith("internal error: ValueError: unit='furlong' is unknown")


def test_input_order_and_default_labels(simulated_points):
    answers = simulated_points([{**GPT3, "B": 48}, {"bad": 1}, GPT3], code=errors.POINTS_FAILED)
    assert [answer["label"] for answer in answers] == ["point 1", "point 2", "point 3"]
    assert [answer["status"] for answer in answers] == ["ok", "invalid", "ok"]
    assert answers[0]["iteration_time"] > answers[2]["iteration_time"]


def test_what_does_not_fit_has_numbers_and_a_reason(simulated_points):
    (answer,) = simulated_points([{**GPT3, "p": 1}])
    assert answer["status"] == "oom"
    assert f"({answer['peak_memory']} bytes)" in answer["reason"]
    assert all(answer[name] is not None for name in NUMBERS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hiden": 4}, "unknown key 'hiden'; did you mean 'hidden'?"),
        ({"zzzzzz": 4}, "unknown key 'zzzzzz'; known: layers, hidden"),
        ({"B": None}, "B=None is not a positive whole number"),
        ({"B": "24"}, "B='24' is a number in quotes; needs B >= 1; try B=24"),
        ({"layers": 96.0}, "layers=96.0 is not a positive whole number"),
        ({"p": True}, "p=True is not a positive whole number"),
        ({"t": 0}, "t=0 is not a positive whole number"),
        ({"p": 97, "B": 97}, "layers=96 for p*v=97*1=97 stages"),
        ({"d": 5}, "B=24 does not split into microbatches"),
        ({"t": 7}, "t=7 does not divide heads=96"),
        ({"v": 4, "B": 20}, "... needs m a multiple of p"),
        ({"schedule": "dualpipe"}, "schedule='dualpipe' is unknown"),
        ({"schedule": ""}, "schedule='' is not a name"),
        ({"schedule": ["1f1b"]}, "schedule=['1f1b'] is not a name"),
        ({"recompute": "some"}, "recompute='some' is unknown"),
        ({"data_parallel": {}}, "data_parallel={} is not a name"),
        ({"scatter_gather": 1}, "scatter_gather=1 is not a truth value"),
        ({"cluster": "selen"}, "cluster='selen' is unknown"),
        ({"cluster": 3}, "cluster=3 is not text"),
        ({"label": 3}, "label=3 is not text"),
        ({"software": ["fast"]}, "software=['fast']; needs a list of some of overlapped_all_reduce"),
        ({"software": "fp32_gradients"}, "software='fp32_gradients'; needs a list"),
        ({"B": 10**12, "schedule": "gpipe"}, "... needs at most 10000000"),
        ({"cp": 2}, "unknown key 'cp'; context parallelism is the letter c here; try c"),
        ({"ep": 8}, "unknown key 'ep'; expert parallelism is the letter e here"),
        ({"dp": 2}, "unknown key 'dp'; the paper's letter is d; try d"),
        ({"sequence_paralel": True}, "unknown key 'sequence_paralel'; did you mean 'sequence_parallel'?"),
        ({"gpus": 8}, "unknown key 'gpus'; GPUs are p*t*c*d; try d"),
        ({"fp8": True}, "unknown key 'fp8'; runs are in 16 bits, or have an fp8_recipe; try fp8_recipe"),
        (
            {"data_parallel": "FSDP"},
            "data_parallel='FSDP' is unknown; needs one of local, torch, zero2, zero3; try data_parallel='zero3'",
        ),
        ({"recompute": True}, "recompute=True is not a name; needs full or selective or none or auto, or leave it out"),
        ({"cluster": "A100"}, "cluster='A100' is unknown; needs one of"),
        ({"layers": "24"}, "layers='24' is a number in quotes; needs layers >= 1; try layers=24"),
        ({"layers": "many"}, "layers='many' is not a positive whole number; needs layers >= 1; try layers=1"),
        ({"model": "llama-3-999b"}, "unknown model 'llama-3-999b'; needs a name that "),
    ],
)
def test_an_invalid_point_says_why_and_the_others_run(simulated_points, change, reason):
    answer, other = simulated_points([{**GPT3, **change}, GPT3], code=errors.POINTS_FAILED)
    assert answer["status"] == "invalid"
    assert says(answer["reason"], reason)
    assert all(answer[name] is None for name in (*NUMBERS, "phase_times"))
    assert other["status"] == "ok"


def test_of_a_configuration_that_is_none_only_the_reason_is_printed(said):
    assert said("simulate", "model=llama-3-8b", "t=3", "B=8", code=4).splitlines() == [
        "point 1: invalid: t=3 does not divide heads=32; needs whole attention heads on every tensor rank; try t=2"
    ]


def test_a_schedule_in_python_is_not_executed(simulated_points, tmp_path):
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    (answer,) = simulated_points([{**GPT3, "schedule": str(tmp_path / "mine.py")}], code=errors.POINTS_FAILED)
    assert answer["status"] == "invalid"
    assert answer["reason"].startswith(
        f"schedule='{tmp_path}/mine.py' is Python, which is executed only where the command"
    )
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("key", ["layers", "hidden", "heads", "B"])
def test_required_keys(simulated_points, key):
    lacking = {name: value for name, value in GPT3.items() if name != key}
    (answer,) = simulated_points([lacking], code=errors.POINTS_FAILED)
    assert f"missing '{key}'" in answer["reason"]


@pytest.mark.parametrize("entry", [7, None, "x", [], [1]])
def test_a_point_that_is_no_object(simulated_points, entry):
    (answer,) = simulated_points([entry], code=errors.POINTS_FAILED)
    assert "needs an object with the keys" in answer["reason"]


def test_the_default_cluster(tmp_path, simulated_points):
    cluster_file = tmp_path / "own.toml"
    cluster_file.write_text(cluster_path("selene").read_text())
    (answer,) = simulated_points([GPT3], "--cluster", cluster_file)
    assert answer["cluster"] == str(cluster_file)


def test_standard_input_and_a_readable_table(monkeypatch, said):
    points = [{**GPT3, "label": "mine"}, {**GPT3, "p": 1, "label": "large"}, {"label": "wrong"}]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(points).encode())))
    text = said("simulate", "-", code=4)
    for part in ("simulated on selene", "MFU", "sequences/s", "iteration", "mine", "oom", "wrong: invalid"):
        assert part in text


def test_no_torch_and_only_the_result_on_stdout():
    code = "import sys; from reproduce.cli import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    done = python("-c", code, "simulate", "-", "--json", input=json.dumps([GPT3]))
    assert json.loads(done.stdout)["origin"] == "simulated"
    assert done.stderr == ""


def test_a_plot_of_the_answers(simulated_points, tmp_path):
    file = tmp_path / "answers.svg"
    too_large = {**GPT3, "p": 1, "t": 8}
    points = [{**GPT3, "label": "mine"}, too_large, {**GPT3, "p": 97}]
    answers = simulated_points(points, "--plot", file, code=errors.POINTS_FAILED)
    assert [answer["status"] for answer in answers] == ["ok", "oom", "invalid"]
    with theme.style():
        figure = estimate_figure.draw(answers)
    speeds, times = figure.axes
    assert speeds.patches[0].get_width() == pytest.approx(answers[0]["model_throughput_per_gpu"] / 1e12)
    ends = [bar.get_x() + bar.get_width() for bar in times.patches[:: len(answers)]]
    assert max(ends) == pytest.approx(answers[0]["iteration_time"])  # the stacked parts are the whole iteration
    assert [text.get_text() for text in speeds.texts] == [" out of memory", " invalid"]
    assert file.read_text().startswith("<?xml")


def test_a_choice_by_memory_is_said(simulated_points):
    recomputed = [{**GPT3, "recompute": name} for name in ("auto", "none", "selective", "full")]
    auto, *others = simulated_points(recomputed)
    least, close = (
        "recompute='selective' is the least that fits",
        "whether it fits is too close to say: memory may be 1.19 times more",
    )
    assert (auto["status"], auto["reason"]) == ("ok", f"{least}; {close}")
    assert [answer["status"] for answer in others] == ["oom", "ok", "ok"]
    assert auto["peak_memory"] == others[1]["peak_memory"]
