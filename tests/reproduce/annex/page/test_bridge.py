"""What the page asks Python for: the numbers of `reproduce`, errors of one line, and nothing that a browser lacks."""

import dataclasses
import json
import re
import subprocess
import sys
from itertools import combinations, pairwise
from math import dist
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig
from reproduce.annex.page import bridge, build
from reproduce.experiment import catalog
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.search import NEAR_TIE
from reproduce.planning.what_if import evaluate
from reproduce.running import runner
from results.records.errors import UnavailableError

FIGURE_12 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 60}


def answer(name: str, /, **arguments: object) -> dict:
    document = json.loads(bridge.call(name, json.dumps(arguments)))
    assert "error" not in document, document
    return document["answer"]


def error(name: str, /, **arguments: object) -> str:
    return json.loads(bridge.call(name, json.dumps(arguments)))["error"]


@pytest.mark.parametrize("id", ["fig_interleaved", "table_zero3", "fig_gpipe_timeline"])
def test_an_artifact_has_the_numbers_and_verdicts_of_its_run(id: str, tmp_path: Path) -> None:
    record = runner.run(runner.plan(catalog.load(id), tmp_path), ["test"]).record
    page = answer("artifact", id=id)
    assert [point["metrics"] for point in page["points"]] == [
        {name: metric.value for name, metric in point.metrics.items()} for point in record.points
    ]
    assert [(claim["id"], claim["verdict"]) for claim in page["claims"]] == [(c.id, c.verdict) for c in record.claims]


def test_the_columns_are_parameters_of_the_points_by_heading() -> None:
    page = answer("artifact", id="table_weak_scaling")
    assert page["columns"]["l"] == "layers"
    assert all(name in point["parameters"] for name in page["columns"].values() for point in page["points"])


def test_an_artifact_names_the_cluster_that_it_was_simulated_on() -> None:
    given = [{}, {"cluster": "h100"}, {"changes": {"hca_bandwidth": 1.3e10}}]
    assert [answer("artifact", id="fig_interleaved", **each)["cluster"] for each in given] == [
        *("selene", "h100", "selene, edited")
    ]


def test_every_artifact_is_offered() -> None:
    assert [entry["id"] for entry in answer("artifacts")["artifacts"]] == list(catalog.ids())


def test_every_field_of_a_configuration_is_offered_and_texts_with_their_choices() -> None:
    fields = answer("start")["fields"]
    defined = [field.name for part in (ModelConfig, ParallelConfig) for field in dataclasses.fields(part)]
    assert sorted(fields) == sorted(defined)
    texts = {name for name, field in fields.items() if isinstance(field["default"], str) and not field["choices"]}
    assert texts == {"pipeline_layout"}  # a text of one's own
    for name, field in fields.items():
        for choice in field["choices"] or ():
            changed = FIGURE_12 | {"d": 1, name: choice} | ({"p": 1, "t": 1, "d": 96} if choice == "zero3" else {})
            assert "is unknown" not in (answer("what_if", configuration=changed)["reason"] or "")


def test_the_page_offers_the_numbers_that_a_configuration_may_have() -> None:
    fields = answer("start")["fields"]
    ends = {name: field["least"] for name, field in fields.items() if field["least"] is not None}
    assert {"kv_heads": 0, "layers": 1, "checkpoint_layers": 1}.items() <= ends.items()
    for name, least in ends.items():
        said = answer("what_if", configuration=FIGURE_12 | {name: least - 1})["reason"]
        assert "is not a positive" in said or "is too small" in said


def test_a_changed_number_changes_what_follows_from_it_and_nothing_else() -> None:
    slow = {"changes": {"hca_bandwidth": 1.3e10, "p2p_bandwidth": 1.2e10}}
    before, after = answer("what_if", configuration=FIGURE_12), answer("what_if", configuration=FIGURE_12, **slow)
    assert after["iteration_time"] > before["iteration_time"]
    assert after["peak_memory"] == before["peak_memory"]
    assert answer("what_if", configuration=FIGURE_12, changes={}) == before


def test_mistakes_are_one_line() -> None:
    assert "lies outside its range" in error("what_if", configuration=FIGURE_12, changes={"hca_bandwidth": 1e20})
    assert "hca_bandwidth='fast' is no number; needs" in error(
        "what_if", configuration={}, changes={"hca_bandwidth": "fast"}
    )
    assert "no number of a cluster" in error("artifact", id="fig_interleaved", changes={"speed": 1})
    assert "not valid TOML" in error("cluster", name="selene", text="[[")
    assert "did you mean" in error("artifact", id="fig_interleave")
    assert "missing 'layers'" in error("timeline", configuration={})
    assert "too many to draw" in error("timeline", configuration=FIGURE_12 | {"B": 10**15})
    assert answer("what_if", configuration=FIGURE_12 | {"schedule": ""})["status"] == "ok"
    invalid = answer("what_if", configuration=FIGURE_12 | {"B": 0})
    assert (invalid["status"], invalid["iteration_time"]) == ("invalid", None)


def test_a_timeline_covers_the_iteration_and_empties_its_stash() -> None:
    timeline = answer("timeline", configuration=FIGURE_12)
    assert len(timeline["rows"]) == 12
    passes = [box for box in timeline["rows"][0] if box[0] in "FB"]
    assert len(passes) == 2 * 60
    assert max(box[4] for row in timeline["rows"] for box in row) == pytest.approx(timeline["iteration_time"])
    assert max(stashed for _, stashed in timeline["stash"][0]) == 12  # the first rank's warm-up of 1F1B: p microbatches
    assert all(steps[-1][1] == 0 for steps in timeline["stash"])


def test_the_critical_path_leads_back_to_the_first_pass_and_has_no_gap_but_messages() -> None:
    timeline = answer("timeline", configuration=FIGURE_12)
    path = [timeline["rows"][rank][i] for rank, i in timeline["critical"]]
    assert path[-1][:3] == ["F", 0, 0]
    assert path[0][:3] == ["B", 0, 59]
    gaps = [after[3] - before[4] for after, before in pairwise(path)]
    assert min(gaps) > -1e-9
    assert sum(gaps) < 0.05 * timeline["iteration_time"]  # waiting for messages; a bubble is on no critical path


def test_the_best_layout_is_the_plan_s() -> None:
    model = {"layers": 24, "hidden": 2304, "heads": 24}
    plans = answer("plan", model=model, gpus=32, batch=512)["plans"]
    times = [plan["iteration_time"] for plan in plans]
    assert min(times) >= times[0] / (1 + NEAR_TIE)
    assert all(0.2 < plan["model_flops_utilization"] < 0.7 for plan in plans)
    assert all(
        plan["configuration"]["p"] * plan["configuration"]["t"] * plan["configuration"]["d"] == 32 for plan in plans
    )


def test_the_best_layouts_say_all_of_the_layout_what_their_order_follows_and_what_was_not_tried() -> None:
    model = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "seq": 8192}
    found = answer("plan", model=model, gpus=16, batch=16, cluster="h100")
    assert "ranked first is what leaves 10%" in found["notes"][0]
    assert "NOT TRIED by the search" in found["notes"][-1]
    first, *others = found["plans"]
    assert first["place"] == ""
    for plan in found["plans"]:
        configuration = plan["configuration"]
        usual = {"c": 1, "e": 1, "etp": 0, "pipeline_layout": ""}
        for name in ("p", "t", "d", "v", "b"):
            assert f"{name}={configuration[name]}" in plan["layout"]
        for name, value in usual.items():
            if configuration.get(name, value) != value:
                assert str(configuration[name]) in plan["layout"]
        assert configuration["schedule"] in plan["layout"]
    assert any("c=2" in plan["layout"] for plan in found["plans"])
    for plan in others:
        faster = plan["iteration_time"] < first["iteration_time"]
        assert ("faster than rank 1" in plan["place"]) is faster
        assert ("slower than rank 1" in plan["place"]) is not faster


@pytest.mark.parametrize("field", ["p", "t", "c", "d"])
def test_a_sweep_of_a_size_keeps_the_number_of_gpus_and_says_how(field: str) -> None:
    configuration = {"layers": 96, "hidden": 12288, "heads": 96, "p": 6, "t": 8, "d": 4, "B": 48, "seq": 4096}
    configuration |= {"attention": "sdpa"}
    found = answer("sweep", configuration=configuration, field=field)
    assert len(found["points"]) > 1
    for point in found["points"]:
        changed = {"p": 6, "t": 8, "c": 1, "d": 4} | point["changes"]
        assert changed["p"] * changed["t"] * changed["c"] * changed["d"] == 192
        assert point["changes"][field] == point["value"]
        alone = answer("what_if", configuration=configuration | point["changes"])
        assert (alone["gpus"], alone["iteration_time"]) == (192, point["iteration_time"])
    assert "on 192 GPUs" in found["label"]
    assert "GPUs" not in answer("sweep", configuration=configuration, field="b")["label"]


def test_the_command_gives_what_is_shown_and_what_has_no_chart_is_called_a_table() -> None:
    assert answer("artifact", id="fig_interleaved", cluster="selene")["command"] == "reproduce fig_interleaved"
    on_h100 = answer("artifact", id="fig_interleaved", cluster="h100")
    assert on_h100["command"] == "reproduce fig_interleaved --cluster h100"
    edited = answer("artifact", id="fig_interleaved", cluster="h100", changes={"hca_bandwidth": 40e9})
    assert edited["command"] == "reproduce fig_interleaved --cluster my.toml"
    assert answer("artifact", id="fig_bubble", cluster="h100")["command"] == "reproduce fig_bubble"
    drawn = {entry["id"]: entry["drawn"] for entry in answer("artifacts")["artifacts"]}
    for id, is_drawn in drawn.items():
        assert is_drawn == (catalog.load(id).x_axis is not None)
    assert drawn["fig_interleaved"]
    assert not drawn["fig_gpipe_timeline"]


def test_the_zoo_on_another_cluster_says_which_series_are_on_which() -> None:
    notes = " ".join(answer("artifact", id="fig_schedule_zoo", cluster="a100-80")["notes"])
    assert "Series that name a cluster are on it (h100); all others are on a100-80." in notes
    assert "Series that name" not in " ".join(answer("artifact", id="fig_schedule_zoo", cluster="selene")["notes"])


def test_the_sources_need_nothing_but_python(tmp_path: Path) -> None:
    for place, text in json.loads(build.sources()).items():
        path = tmp_path / place.removeprefix(f"{build.PLACE}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    code = (
        f"import sys, json; sys.path.insert(0, {str(tmp_path)!r}); from reproduce.annex.page import bridge; "
        "print(json.loads(bridge.call('artifact', json.dumps({'id': 'fig_interleaved'})))['answer']['label'])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Figure 12\n"), done.stderr


def test_the_page_is_filled_in(tmp_path: Path) -> None:
    build.build(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "https://cdn.jsdelivr.net/npm/d3@" in page
    assert page.count('integrity="sha384-') == 2
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy
    assert page.index("<script") > policy.end()  # what stands before it would not be under it
    assert "unsafe-inline" not in policy[1]
    assert "'unsafe-eval'" not in policy[1]
    scripts = re.findall(r'<link rel="preload" as="script" href="(.*?)"', page)
    assert len(scripts) == 2
    for script in scripts:  # each library by its whole address
        assert f" {script} " in policy[1].replace(";", " ;")
    for path in tmp_path.glob("*.*s"):
        assert not re.search("@[A-Z0-9_]+@", path.read_text(encoding="utf-8"))
    assert not re.search("@[A-Z0-9_]+@", page)


def test_the_published_points_of_figure_12_stand_in_the_page_before_anything_is_computed(tmp_path: Path) -> None:
    build.build(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    published = [point.paper["throughput_per_gpu"].value for point in catalog.load("fig_interleaved").points("paper")]
    for width in (760, 358):
        (drawing,) = re.findall(rf'<svg class="published w{width}".*?</svg>', page)
        heights = [float(height) for height in re.findall(r'<circle .*?cy="(.*?)"', drawing)]
        # The marks stand where the values are on an axis from 0 to 160 teraFLOP/s, to a tenth of a pixel.
        lines = [float(height) for height in re.findall(r'class="grid" d="M56 (.*?)H', drawing)]
        drawn = [160e12 * (lines[0] - height) / (lines[0] - lines[-1]) for height in heights]
        assert drawn == pytest.approx(published, abs=0.05e12)


def test_the_page_has_the_whole_run_and_what_limits_it() -> None:
    given = answer("what_if", configuration=FIGURE_12, tokens="300B", price="2.5", sensitivity=True)
    document = evaluate(FIGURE_12, 1, "selene", run=TrainingRun(300e9, price=2.5), sensitivity=True)
    assert given | json.loads(json.dumps(document)) == given
    assert {metric["name"] for metric in answer("start")["of_run"]} <= given["run"].keys()
    assert "'much' is no amount" in error("what_if", configuration=FIGURE_12, tokens="much")


def test_an_answer_says_what_of_a_gpu_s_memory_is_used_and_what_an_iteration_consists_of() -> None:
    given = answer("what_if", configuration=FIGURE_12)
    assert sum(part["bytes"] for part in given["memory"]) == given["peak_memory"] < given["capacity"] == 80.2e9
    assert sum(phase["seconds"] for phase in given["phases"]) == pytest.approx(given["iteration_time"], rel=1e-12)
    assert given["limit"].startswith("61% of the iteration trains the model; the largest other part, 20%, is recomp")
    assert given["sizes"].startswith("174.6 billion parameters on 96 GPUs, 60 microbatches for each pipeline")
    assert answer("what_if", configuration=FIGURE_12 | {"recompute": "none"})["status"] == "oom"


def test_two_configurations_side_by_side_have_the_numbers_of_each_and_only_what_differs() -> None:
    other = {"configuration": FIGURE_12, "cluster": "selene"}
    compared = answer("compare", configuration=FIGURE_12 | {"B": 120, "d": 2}, other=other)
    assert {each["name"]: each["values"] for each in compared["differences"]} == {"d": ["1", "2"], "B": ["60", "120"]}
    alone = answer("what_if", configuration=FIGURE_12 | {"B": 120, "d": 2})["iteration_time"]
    assert compared["metrics"][0]["values"] == ["13.75", f"{alone:.2f}"]
    spelt_out = FIGURE_12 | {"d": 1, "schedule": "", "recompute": "full"}
    same = answer("compare", configuration=spelt_out, other=other)
    assert (same["differences"], same["sentence"]) == ([], "")
    slower = answer("compare", configuration=FIGURE_12, other=other, changes={"hca_bandwidth": 1.3e10})
    assert [each["values"] for each in slower["differences"]] == [["17 GB/s", "13 GB/s"]]
    elsewhere = answer("compare", configuration=FIGURE_12, other=other, cluster="h100")
    assert elsewhere["sentence"].startswith("Cluster selene → h100: iteration 13.75 → ")


def test_what_changed_is_said_with_both_values_and_becomes_no_claim_where_nothing_is_known() -> None:
    before = {"configuration": FIGURE_12, "cluster": "selene"}
    halved = answer("what_if", configuration=FIGURE_12 | {"B": 30}, before=before)
    assert halved["changed"].startswith("Batch size 60 → 30: iteration 13.75 → 7.95 s (−42.2%), MFU 32.1 → 27.8 % (−")
    wrong = answer("what_if", configuration=FIGURE_12 | {"B": 0}, before=before)
    assert wrong["changed"] == "Batch size 60 → 0. It is now invalid."


@pytest.mark.parametrize("field", ["t", "B", "hidden", "recompute", "schedule", "sequence_parallel"])
def test_a_sweep_simulates_legal_values_of_one_field_among_them_the_present_one(field: str) -> None:
    configuration = FIGURE_12 | {"recompute": "full", "schedule": "", "sequence_parallel": False}
    points = answer("sweep", configuration=configuration, field=field)["points"]
    assert 2 <= len(points) <= 14
    assert configuration[field] in [point["value"] for point in points]
    for point in points:
        alone = answer("what_if", configuration=configuration | point["changes"])
        assert point["iteration_time"] == alone["iteration_time"]
        assert point["status"] == alone["status"] != "invalid"


def test_a_rank_waits_for_the_pass_whose_message_it_needs() -> None:
    rows = answer("timeline", configuration=FIGURE_12)["rows"]
    place = next(i for i, box in enumerate(rows[0]) if box[0] == "B")  # the first backward pass of the first rank
    while rows[0][place - 1][0] != "F":
        place -= 1  # it waits before the message
    start, end = rows[0][place - 1][4], rows[0][place][3]
    sentence = answer("wait", configuration=FIGURE_12, rank=0, place=place)["sentence"]
    assert sentence == (
        f"Rank 0 waits {end - start:.2f} s from {start:.3f} s, "
        "for the backward pass of microbatch 0 on rank 1 and its message."
    )
    last = answer("wait", configuration=FIGURE_12, rank=11, place=len(rows[11]))["sentence"]
    assert last.endswith("until the slowest rank has come as far.")


def test_every_scenario_fits_on_its_cluster_and_says_how_many_gpus_it_takes() -> None:
    for scenario in answer("start")["scenarios"]:
        given = answer("what_if", **{name: scenario[name] for name in ("cluster", "configuration", "tokens")})
        assert given["status"] == "ok", scenario["title"]
        assert f"{given['gpus']:,}" in scenario["title"]


def test_every_lesson_s_answer_is_made_of_its_simulated_steps() -> None:
    lessons = [answer("lesson", id=entry["id"]) for entry in answer("start")["lessons"]]
    assert len(lessons) == 6
    for lesson in lessons:
        told = " ".join(step["said"] for step in lesson["points"])
        known = {float(number) for number in re.findall(r"\d+\.\d+", told)}
        unknown = {float(number) for number in re.findall(r"\d+\.\d+", lesson["answer"])} - known
        assert len(unknown) <= (lesson["id"] == "bubble"), lesson["id"]  # (p-1)/m is no step
        for step in lesson["points"]:
            alone = answer("what_if", configuration=step["configuration"], cluster=lesson["cluster"])
            assert step["iteration_time"] == alone["iteration_time"]
    best = max(lessons[2]["points"], key=lambda step: step["model_flops_utilization"])
    assert lessons[2]["answer"].startswith(f"t={best['value']} is best")
    assert "needs one of bubble, interleaving" in error("lesson", id="bubbel")


def test_numbers_of_a_cluster_are_shown_in_units_that_people_read() -> None:
    numbers = {number["name"]: number for number in answer("cluster", name="selene")["numbers"]}
    shown = {name: (number["value"] / number["shown"][1], number["shown"][0]) for name, number in numbers.items()}
    assert shown["peak_flops"] == (312.0, "TFLOP/s")
    assert shown["hca_bandwidth"] == (17.0, "GB/s")
    assert shown["network_latency"] == (pytest.approx(20.0), "µs")
    assert shown["gpus_per_node"] == (8.0, "")
    assert numbers["nvlink_p2p_bandwidth"]["words"] == "NVLink point-to-point bandwidth"


def test_a_package_that_was_fetched_once_needs_no_npm_unless_a_file_of_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    asset = {"version": "1.0", "files": {"dist/a.js": build.integrity(b"a")}}
    monkeypatch.setitem(build.ASSETS, "package", asset)
    kept = tmp_path / "ptdp" / "npm" / "package@1.0" / "dist" / "a.js"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"a")
    build.fetch("package", tmp_path / "out")
    assert (tmp_path / "out" / "dist" / "a.js").read_bytes() == b"a"
    kept.write_bytes(b"b")
    with pytest.raises(UnavailableError, match="npm was not found"):
        build.fetch("package", tmp_path / "out")


def _lab(colour: str) -> list[float]:
    """A colour as #rrggbb in CIELAB (D65)."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    weights = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    ratios = [sum(w * c for w, c in zip(row, linear, strict=True)) / n for row, n in zip(weights, white, strict=True)]
    x, y, z = (r ** (1 / 3) if r > 0.008856 else 7.787 * r + 16 / 116 for r in ratios)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def test_the_colours_of_a_timeline_can_be_told_apart() -> None:
    script = (build.FOLDER / "page" / "timeline.js").read_text(encoding="utf-8")
    colours = dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', script))
    assert {"F", "B", "I", "W", "held"} <= colours.keys()
    distances = {
        (one, other): dist(_lab(colours[one]), _lab(colours[other])) for one, other in combinations(colours, 2)
    }
    assert min(distances.values()) > 25, min(distances, key=distances.__getitem__)
