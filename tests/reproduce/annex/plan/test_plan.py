"""`reproduce plan`: what it finds, what it says and writes, and everything that can be wrong with the request."""

import re
from argparse import Namespace
from dataclasses import replace
from functools import partial

import pytest

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.simulator import cluster_path, load_cluster
from reproduce.cli import main
from reproduce.experiment import published
from reproduce.output.tables import print_table
from reproduce.output.terminal import console
from reproduce.planning import models, plan, plan_text
from reproduce.planning.cells import PAPERS_TECHNIQUES, configurations
from reproduce.planning.plan_text import PARAMETERS
from reproduce.planning.search import NEAR_TIE, search
from reproduce.planning.space import TrainingJob
from reproduce.planning.what_if import answer, evaluate
from results.records import read_record

TABLE_1 = published.artifact("table_weak_scaling")["rows"]
SMALL = ("--layers", "24", "--hidden", "2304", "--heads", "24", "--gpus", "32", "--batch", "512")


@pytest.fixture
def ask(said, tmp_path):
    """What `plan` prints with these arguments."""
    return partial(said, "plan", "--results", tmp_path)


@pytest.fixture
def written(tmp_path):
    """The words of the one plan's table.md, which has more than a terminal shows."""

    def words():
        (table,) = tmp_path.glob("plan/*/table.md")
        return " ".join(table.read_text().split())

    return words


@pytest.fixture
def answer_of(as_json, tmp_path):
    return partial(as_json, "plan", "--results", tmp_path)


@pytest.fixture
def ask_in_vain(refused, tmp_path):
    """The line with which `plan` ends, with a code."""
    return partial(refused, "plan", "--results", tmp_path)


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row['parameters_B']}B")
def test_the_papers_configuration_is_a_candidate_that_fits(row):
    job = TrainingJob(ModelConfig(row["layers"], row["hidden"], row["heads"]), row["gpus"], row["B"])
    paper = plan.paper_plan(job, load_cluster())
    assert plan.paper_plan(TrainingJob(job.model, job.n, 2 * job.B), load_cluster()) is None
    assert plan.paper_plan(TrainingJob(job.model, 2 * job.n, job.B), load_cluster()) is None
    assert paper.where == "Table 1"
    found = paper.estimate.config.parallel
    assert [found.p, found.t, found.v, found.b] == [row[name] for name in ("p", "t", "v", "b")]
    assert paper.estimate.config in set(configurations(job, 8, PAPERS_TECHNIQUES))
    assert paper.estimate.fits


def test_table_2_is_known_too():
    gpt3 = models.named("175b")
    found = plan.paper_plan(TrainingJob(gpt3, 768, 1536), load_cluster())
    parallel = found.estimate.config.parallel
    assert (found.where, parallel.p, parallel.t) == ("Table 2", 12, 8)
    assert plan.paper_plan(TrainingJob(gpt3, 1024, 1536), load_cluster()) is None


@pytest.mark.slow
def test_a_model_of_table_1_brings_its_gpus_and_its_batch(answer_of):
    document = answer_of("--model", "1.7b")
    assert (document["gpus"], document["batch"], document["origin"]) == (32, 512, "simulated")
    ranked = document["configurations"]
    assert [entry["rank"] for entry in ranked[:3]] == [1, 2, 3]
    times = [entry["iteration_time"] for entry in ranked]
    assert min(times) >= times[0] / (1 + NEAR_TIE)
    assert ranked[0]["slower_by"] == 0
    (paper,) = [row for row in ranked if row["which"] and "paper" in row["which"].split(", ")]
    assert (paper["p"], paper["t"], paper["d"], paper["b"], paper["recompute"]) == (1, 1, 32, 16, "full")
    counts = document["counts"]
    assert counts["legal"] == sum(counts[name] for name in counts if name != "legal")
    for comparison in document["comparisons"]:
        row = next(item for item in ranked if comparison["which"] in (item["which"], f"rank {item['rank']}"))
        assert sum(comparison["seconds_more"].values()) == pytest.approx(row["iteration_time"] - times[0], abs=1e-9)


@pytest.mark.slow
def test_the_best_by_the_papers_means_is_shown(answer_of):
    document = answer_of(*SMALL)
    job = TrainingJob(ModelConfig(24, 2304, 24), 32, 512)
    (papers,) = search(job, load_cluster(), 1, PAPERS_TECHNIQUES).ranked[:1]
    (marked,) = [entry for entry in document["configurations"] if "the paper's means" in (entry["which"] or "")]
    assert marked["iteration_time"] == papers.iteration_time
    assert all(marked[name] == getattr(papers.config.parallel, name) for name in PARAMETERS)
    assert document["configurations"][0]["iteration_time"] <= papers.iteration_time * (1 + NEAR_TIE)
    assert sum(marked["memory_bytes"].values()) == marked["peak_memory"]


def test_only_what_runs_were_like_is_said_to_be_sure(ask, answer_of):
    """With experts there are no margins on the paper's cluster: the table says no more than the answer's intervals."""
    experts = ("--model", "mixtral-8x7b", "--gpus", "16", "--batch", "64")
    assert not any(entry["intervals"] for entry in answer_of(*experts)["configurations"])
    text = ask(*experts, "--columns", "rank,iteration,interval")
    assert re.search(r"^ +1 +[\d.]+ +-", text, re.MULTILINE)
    assert "the best has no interval: how far runs with experts are off" in text
    assert "the best has no interval" not in ask(*SMALL)


def test_the_shortest_answer_is_the_ranking_and_what_makes_it_less_sure(ask):
    words = ("--model", "qwen2.5-32b", "--gpus", "8", "--batch", "8", "--cluster", "h100")
    text = ask(*words, "--quiet")
    assert len(text.splitlines()) < 25
    assert [row[:7].strip() for row in text.splitlines() if row[:7].strip().isdecimal()] == ["1", "2", "3"]
    for said in ("not modelled of qwen2.5-32b", "rank 1, is tight, as it", "whether rank 1 fits is too close to say"):
        assert said in text
    whole = ask(*words)
    assert all(line in whole for line in text.splitlines())


@pytest.mark.parametrize(
    "words",
    [
        ("--program", "torchtitan-eager"),
        ("--program", "hf", "--set", "fused=true"),
        ("--set", "lora_rank=16"),
        ("--set", "optimizer_states=muon", "--set", "vocab=64000"),
    ],
)
def test_a_plan_has_the_time_that_simulate_gives_the_same_fields(answer_of, words):
    """Also of what its program does by default, such as operators one by one."""
    job = ("--model", "llama-3.2-1b", "--seq", "4096", "--gpus", "4", "--batch", "16", "--cluster", "h100")
    document = answer_of(*job, *words)
    best, program = document["configurations"][0], words[1] if words[0] == "--program" else None
    fields = {"model": "llama-3.2-1b", "seq": 4096, "B": 16, **{name: best[name] for name in PARAMETERS}}
    given = dict(word.split("=") for word in words if "=" in word)
    fields |= {name: int(value) if value.isdecimal() else value == "true" or value for name, value in given.items()}
    assert evaluate(fields, 1, "h100", program=program)["iteration_time"] == best["iteration_time"]
    assert document["model"]["vocab"] == int(given.get("vocab", 128256))


def test_numbers_are_the_simulators(answer_of):
    best = answer_of(*SMALL)["configurations"][0]
    sizes = {name: best[name] for name in PARAMETERS}
    kind = "torch" if best["p"] == 1 else "local"
    point = {"layers": 24, "hidden": 2304, "heads": 24, "B": 512, "data_parallel": kind, **sizes}
    same = evaluate(point, 1, "selene")
    assert same.keys() == answer("", "ok", None).keys()
    for name in ("iteration_time", "throughput_per_gpu", "bubble_fraction", "peak_memory", "traffic", "phase_times"):
        assert best[name] == same[name]
    for name in ("model_throughput_per_gpu", "model_flops_utilization"):
        assert best[name] == same[name]


def test_throughput_counts_the_models_passes_and_the_mfu_is_their_share_of_the_peak(answer_of, ask):
    (best, *_) = answer_of(*SMALL)["configurations"]
    flops = model_flops_per_iteration(ModelConfig(24, 2304, 24), 512) / (32 * best["iteration_time"])
    assert best["recompute"] == "none"
    assert best["model_throughput_per_gpu"] == pytest.approx(flops)
    assert best["model_flops_utilization"] == pytest.approx(flops / load_cluster().peak_flops)
    assert best["intervals"]["model_flops_utilization"]["low"] < best["model_flops_utilization"]
    out = ask(*SMALL)
    assert re.search(r"MFU\s", out)
    assert "eq. 3" not in out.replace("by its own count (eq. 3)", "")


def test_a_layout_that_leaves_little_memory_is_marked_and_comes_last(answer_of, ask):
    """With a headroom of 99% every layout is tight, and the best of them is answered nevertheless."""
    job = ("--layers", "24", "--hidden", "4096", "--heads", "32", "--gpus", "8", "--batch", "16")
    best, *_ = (first := answer_of(*job, "--top", "1"))["configurations"]
    assert (first["headroom"], best["tight"]) == (0.1, False)
    assert best["free_memory"] == pytest.approx(1 - best["peak_memory"] / load_cluster().usable_memory)
    strict = answer_of(*job, "--top", "1", "--headroom", "99")["configurations"][0]
    assert strict["tight"]
    out = ask(*job, "--top", "1", "--headroom", "99")
    assert "every one is tight; try more GPUs" in " ".join(out.split())


def test_what_is_faster_than_rank_1_says_why_it_comes_later_and_what_makes_it_faster():
    name, job = plan.request({"layers": 24, "hidden": 2304, "heads": 24, "gpus": 32, "batch": 512})
    made = plan.make_plan(name, job, load_cluster(), "selene", 3)
    best, other = made.best, made.search.ranked[1]
    parts = dict(other.phase_times)
    parts["data_parallel"] += 0.370
    parts["bubble"] -= 0.539 + other.iteration_time - best.iteration_time
    full = round(0.95 * made.cluster.usable_memory)
    faster = replace(other, phase_times=parts, iteration_time=sum(parts.values()), peak_memory=full)
    changed = replace(made, search=replace(made.search, ranked=(best, faster)), papers_best=None, paper=None)
    first, time, *_ = plan_text.comparison_lines(changed)
    assert re.match(
        r"rank 2: [\d.]+% faster than rank 1 and tight, which comes first as it leaves \d+% .* not 5%", first
    )
    assert "; mostly bubble: " in first
    assert "data-parallel communication +0.37" in time


def test_a_gpu_whose_memory_is_all_reserved_has_none_to_fill_for_everyone(tmp_path, ask_in_vain):
    file = tmp_path / "small.toml"
    file.write_text('name = "small"\nbase = "selene"\nmemory_bytes = 1e9\n')
    with pytest.warns(UserWarning, match="plausible range"):
        cluster = load_cluster(str(file))
    assert cluster.usable_memory == 0
    assert "has 0.0 GB to fill" in ask_in_vain(*SMALL, "--cluster", file, code=9)


@pytest.mark.parametrize("hours", ["1e-9", "1", "100", "10000"])
def test_failures_as_often_as_one_likes_are_an_answer_or_one_line(hours, tmp_path, capsys):
    failing = ("--mtbf", hours, "--checkpoint-seconds", "300", "--restart-seconds", "600", "--top", "1")
    code = main(["plan", *SMALL, "--tokens", "1T", *failing, "--results", str(tmp_path)])
    out, err = capsys.readouterr()
    assert (code == 0 and "failures: one every" in out) or (code == 2 and "a run gets nowhere" in err)


def test_the_ranking_has_the_columns_chosen(ask, tmp_path, written):
    out = ask(*SMALL, "--columns", "iteration, p,schedule")
    (folder,) = (tmp_path / "plan").iterdir()
    headers = [line for line in (folder / "table.md").read_text().splitlines() if line.startswith("|")]
    assert re.split(r"\s*\|\s*", headers[0])[1:-1] == ["iteration (s)", "p", "schedule, recomputed, ..."]
    assert re.search(r"^ *\(s\) +p  schedule, recomputed, \.\.\. *$", out, re.MULTILINE)
    assert "slower by (%)" not in out
    assert "activations" in written()  # the table of memory is whole


def test_a_terminal_of_80_columns_has_the_time_of_every_rank(capsys):
    name, job = plan.request({"layers": 24, "hidden": 2304, "heads": 24, "gpus": 32, "batch": 512})
    made = plan.make_plan(name, job, load_cluster(), "selene", 3)
    print_table(console(80), plan_text.ranking(made))
    out = capsys.readouterr().out
    assert "best by the paper's means" in out  # as wide as the second column is
    assert all(f"{estimate.iteration_time:.3f}" in out for estimate in made.search.ranked[:3])


def test_values_are_said_as_simulate_takes_them(ask, written):
    out = ask(*SMALL)
    assert "=false instead of true" in written()
    assert not re.search(r"\b(True|False)\b", out + written())


def test_a_terminal_has_the_answer_and_table_md_how_it_was_found(ask, written):
    """A plan filled 85 lines of 80 columns; what it says of rank 1 and of the paper's means stays on the screen."""
    out = ask(*SMALL)
    assert len(out.splitlines()) <= 30
    for said in ("rank 1: p=", "slower than rank 1; mostly ", "legal layouts", "NOT TRIED", "90% of thro"):
        assert said in out
    for said in ("Takeaway 3: ", "Memory of the fullest GPU", "instead of", "recomputed is the whole layer (full)"):
        assert said not in out
        assert said in written()


def test_a_column_that_is_none_is_said_before_the_search(ask_in_vain, monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "make_plan", None)  # a search would fail
    error = ask_in_vain(*SMALL, "--columns", "rank,time")
    assert "--columns 'time': the table has no such column; there are rank, which, p, t, d, v, b," in error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_sizes_and_names_are_the_same_model(answer_of):
    named, sized = answer_of("--model", "1.7b"), answer_of(*SMALL)
    assert named["configurations"] == sized["configurations"]
    assert (named["model"]["name"], sized["model"]["name"]) == ("1.7b", "own")
    assert answer_of("--model", "1.7B", "--seq", "1024")["configurations"] != sized["configurations"]


def test_every_name_is_a_model():
    known = {models.named(name) for name in models.main_names()}
    names = {name: models.named(name) for name in ("1.7b", "145.6b", "145b", "175b", "530b", "1008b", "1t")}
    assert names["1t"] == names["1008b"] == ModelConfig(128, 25600, 160)
    assert set(names.values()) <= known


@pytest.mark.slow
def test_top(answer_of):
    assert len(answer_of(*SMALL, "--top", "1")["configurations"]) <= 4
    many = answer_of(*SMALL, "--top", "5")["configurations"]
    assert [entry["rank"] for entry in many[:5]] == list(range(1, 6))
    assert many[:3] == answer_of(*SMALL)["configurations"][:3]


@pytest.mark.slow
def test_what_it_says(ask, tmp_path, written):
    out = ask("--model", "39.1b", "--top", "3")
    for text in (
        "39.1B (48 layers, hidden size 8192, 64 heads) on 512 GPUs of selene, batch 1536",
        *("simulated on selene", "do not fit", "lower bound", "mostly"),
        "the paper (Table 1) ran p=2, t=8, d=32, v=1, b=4",
    ):
        assert text in " ".join(out.split())
    assert all(text in written() for text in ("Takeaway 1:", "Takeaway 2:", "Takeaway 3:", "Memory of the fullest GPU"))
    assert re.search(r"paper: \d+\.\d% slower than rank 1", " ".join(out.split()))
    assert max(map(len, out.splitlines())) <= max(120, len(str(tmp_path)) + 100)


@pytest.mark.slow
def test_what_it_writes(ask, tmp_path):
    ask(*SMALL)
    (folder,) = (tmp_path / "plan").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["record.json", "table.csv", "table.md"]
    record = read_record(folder / "record.json")
    assert (record.kind, record.id, record.fidelity) == ("comparison", "plan", "simulated")
    assert {metric.origin for point in record.points for metric in point.metrics.values()} == {"simulated"}
    assert record.provenance.cluster is not None
    assert any(note.startswith("Takeaway 2") for note in record.notes)
    paper = [point for point in record.points if "throughput_per_gpu" in point.paper]
    assert [point.paper["throughput_per_gpu"].value for point in paper] == [137e12]
    assert "|   rank |" in (folder / "table.md").read_text()


@pytest.mark.slow
def test_the_cluster_matters(answer_of, tmp_path):
    text = cluster_path("selene").read_text()
    small = tmp_path / "forty.toml"
    small.write_text(text.replace("value = 85.2e9", "value = 42e9").replace("[84.9e9, 85.9e9]", "[40e9, 86e9]"))
    less = answer_of(*SMALL, "--cluster", small)
    assert less["cluster"] == "forty"
    assert all(entry["peak_memory"] <= 37e9 for entry in less["configurations"])


@pytest.mark.slow
def test_tensor_parallelism_ends_with_the_key_value_heads(answer_of):
    answer = answer_of("--model", "llama-3-8b", "--seq", "2048", "--gpus", "32", "--batch", "64")
    assert answer["model"]["kv_heads"] == 8
    legal = configurations(TrainingJob(ModelConfig(32, 4096, 32, 2048, kv_heads=8), 32, 64), 8)
    assert {config.parallel.t for config in legal} == {1, 2, 4, 8}
    assert all(each["t"] <= 8 for each in answer["configurations"])


def test_a_batch_that_nothing_divides_comes_with_one_that_works(ask, ask_in_vain):
    model = ("--layers", "2", "--hidden", "4096", "--heads", "2", "--gpus", "64")
    error = ask_in_vain(*model, "--batch", "17")
    assert "batch=17 is divisible by no data-parallel size that 64 GPUs allow (d = 8, 16, 32, 64)" in error
    (fix,) = re.findall(r"try batch=(\d+)", error)
    assert fix == "16"
    ask(*model, "--batch", fix)


@pytest.mark.slow
def test_what_does_not_fit_comes_with_the_gpus_that_would_do(ask, ask_in_vain):
    error = ask_in_vain("--model", "175b", "--gpus", "16", "--batch", "192", code=9)
    assert re.search(r"nothing fits: .* takes least memory, [\d.]+ GB; selene has 80\.2 GB to fill", error)
    (fix,) = re.findall(r"try gpus=(\d+)", error)
    ask("--model", "175b", "--gpus", fix, "--batch", "192")


def test_the_takeaways_may_find_nothing_where_the_search_does(answer_of, ask):
    """Without a sharded optimizer only a tensor group of two nodes holds this model: Takeaway 1 stops at one."""
    job = ("--layers", "2", "--hidden", "49152", "--heads", "64", "--gpus", "32", "--batch", "32")
    document = answer_of(*job)
    assert document["takeaways"]["microbatches_tried"] == []
    assert document["configurations"]
    assert "Takeaway 2: none of the sizes M = t*p fits" in ask(*job)


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(tmp_path, ask_in_vain):
    (tmp_path / "plan").write_text("a file")
    assert "cannot write" in ask_in_vain(*SMALL, code=3)


def test_help_names_the_models(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "175b" in text or "174.6b" in text


def test_a_request_is_a_job():
    args = Namespace(model="1t", layers=None, hidden=None, heads=None, seq=None, vocab=None, top=1)
    name, job = plan.request({**vars(args), "gpus": 512, "batch": 64})
    assert (name, job.n, job.B, job.model.hidden) == ("1t", 512, 64, 25600)
