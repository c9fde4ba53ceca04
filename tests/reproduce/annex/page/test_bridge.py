"""What the page asks Python for: the numbers of `reproduce`, errors of one line, and nothing that a browser lacks."""

import dataclasses
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import simulate
from ptdp_core.simulator.programs import load_program, program_names
from reproduce.annex.page import bridge, build, home, lessons
from reproduce.annex.page.home import REFERENCE
from reproduce.experiment import catalog
from reproduce.planning import what_if
from reproduce.planning.plan import MODEL_FIELDS, make_plan, request
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.search import takeaways
from reproduce.planning.time_shares import time_shares
from reproduce.planning.what_if import evaluate
from reproduce.running import runner
from reproduce.running.simulated import open_cluster
from results import ROOT, opening
from results.records.errors import UnavailableError

FIGURE_12 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 60}


def answer(name, /, **arguments):
    document = json.loads(bridge.call(name, json.dumps(arguments)))
    assert "error" not in document, document
    return document["answer"]


def error(name, /, **arguments):
    return json.loads(bridge.call(name, json.dumps(arguments)))["error"]


@pytest.mark.parametrize("id", ["fig_interleaved", "table_zero3", "fig_gpipe_timeline"])
def test_an_artifact_has_the_numbers_and_verdicts_of_its_run(id, tmp_path):
    record = runner.run(runner.plan(catalog.load(id), tmp_path), ["test"]).record
    page = answer("artifact", id=id)
    assert [point["metrics"] for point in page["points"]] == [
        {name: metric.value for name, metric in point.metrics.items()} for point in record.points
    ]
    judged = answer("claims", id=id)["claims"]
    assert [(claim["id"], claim["verdict"]) for claim in judged] == [(c.id, c.verdict) for c in record.claims]


def test_the_table_of_points_has_their_parameters_by_heading_and_how_far_off_they_are():
    page = answer("artifact", id="table_weak_scaling")
    headings, *rows = page["table"]
    assert [row[headings.index("l")] for row in rows] == [point["parameters"]["layers"] for point in page["points"]]
    first, name = rows[0], page["quantities"][0]["name"]
    off = 100 * (page["points"][0]["metrics"][name] / page["points"][0]["paper"][name] - 1)
    assert first[headings.index("Off, %")] == f"{off:.1f}"
    assert re.fullmatch(r"\d+ points: [\d.]+% from the paper on average, [\d.]+% at worst\.", page["near"])


def test_a_snapshot_keeps_no_answer(monkeypatch):
    """What the page shows is computed in it, though the code has run once before."""
    monkeypatch.setattr(bridge, "gc", SimpleNamespace(collect=list, freeze=list, set_threshold=id))
    bridge.prepare()
    assert bridge._evaluated.cache_info().currsize == bridge.answers.kept.cache_info().currsize == 0


def test_an_artifact_names_the_cluster_that_it_was_simulated_on():
    given = [{}, {"cluster": "h100"}, {"changes": {"hca_bandwidth": 1.3e10}}]
    assert [answer("artifact", id="fig_interleaved", **each)["cluster"] for each in given] == [
        *("selene", "h100", "selene, edited")
    ]


def test_an_artifact_is_on_its_papers_own_cluster_unless_another_is_chosen():
    """And has there the verdicts of the committed record, to which the papers' pages lead."""
    own = answer("artifact", id="llama3/table_4", cluster="")
    assert (own["cluster"], own["elsewhere"]) == ("h100", False)
    assert any(point["paper"] for point in own["points"])
    (path,) = runner.record_paths(REFERENCE, catalog.load("llama3/table_4"))
    kept = json.loads(path.read_text())["claims"]
    judged = answer("claims", id="llama3/table_4")["claims"]
    assert [(claim["id"], claim["verdict"]) for claim in judged] == [(c["id"], c["verdict"]) for c in kept]
    there = answer("artifact", id="llama3/table_4", cluster="selene")
    assert (there["cluster"], there["elsewhere"]) == ("selene", True)
    assert [point["paper"] for point in there["points"]] == [point["paper"] for point in own["points"]]
    assert "Off, %" in own["table"][0]
    assert "Off, %" not in there["table"][0]  # shown, but not compared
    assert answer("cluster", name="", id="llama3/table_4")["name"] == "h100"
    assert answer("cluster", name="")["name"] == answer("start")["usual"] == "selene"


def test_every_artifact_is_offered():
    assert [entry["id"] for entry in answer("artifacts")["artifacts"]] == list(catalog.ids())


def test_every_field_of_a_configuration_is_offered_and_texts_with_their_choices():
    fields = answer("start")["fields"]
    defined = [field.name for part in (ModelConfig, ParallelConfig) for field in dataclasses.fields(part)]
    assert sorted(fields) == sorted([*defined, "program"])
    texts = {name for name, field in fields.items() if isinstance(field["default"], str) and not field["choices"]}
    assert texts == {
        "pipeline_layout",
        "window_layers",
        "layer_pattern",
        "recompute_modules",
        "offload",
        "attention_kernels",
    }  # one's own
    for name, field in fields.items():
        for choice in field["choices"] or ():
            changed = FIGURE_12 | {"d": 1, name: choice} | ({"p": 1, "t": 1, "d": 96} if choice == "zero3" else {})
            assert "is unknown" not in (answer("what_if", configuration=changed)["reason"] or "")


def test_the_page_offers_the_numbers_that_a_configuration_may_have():
    fields = answer("start")["fields"]
    ends = {name: field["least"] for name, field in fields.items() if field["least"] is not None}
    assert {"kv_heads": 0, "layers": 1, "checkpoint_layers": 1}.items() <= ends.items()
    for name, least in ends.items():
        said = answer("what_if", configuration=FIGURE_12 | {name: least - 1})["reason"]
        assert "is not a positive" in said or "is too small" in said


def test_a_changed_number_changes_what_follows_from_it_and_nothing_else():
    slow = {"changes": {"hca_bandwidth": 1.3e10, "p2p_bandwidth": 1.2e10}}
    before, after = answer("what_if", configuration=FIGURE_12), answer("what_if", configuration=FIGURE_12, **slow)
    assert after["iteration_time"] > before["iteration_time"]
    assert after["peak_memory"] == before["peak_memory"]
    assert answer("what_if", configuration=FIGURE_12, changes={}) == before


def test_mistakes_are_one_line():
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


def test_a_timeline_covers_the_iteration_and_empties_its_stash():
    timeline = answer("timeline", configuration=FIGURE_12)
    assert len(timeline["rows"]) == 12
    passes = [box for box in timeline["rows"][0] if box[0] in "FB"]
    assert len(passes) == 2 * 60
    assert max(box[4] for row in timeline["rows"] for box in row) == pytest.approx(timeline["iteration_time"])
    assert max(stashed for _, stashed in timeline["stash"][0]) == 12  # the first rank's warm-up of 1F1B: p microbatches
    assert all(steps[-1][1] == 0 for steps in timeline["stash"])


def test_the_best_layout_is_the_plan_s():
    configuration = {"layers": 24, "hidden": 2304, "heads": 24, "p": 1, "t": 8, "d": 4, "B": 512}
    found = answer("best", configuration=configuration)
    name, job = request({"layers": 24, "hidden": 2304, "heads": 24, "gpus": 32, "batch": 512})
    loaded, reference = open_cluster("selene")
    best = make_plan(name, job, loaded, reference.name, 7).best
    assert found["first"]["configuration"] == json.loads(json.dumps(best.config.to_plain()))
    assert found["first"]["iteration_time"] == best.iteration_time
    other = answer("best", configuration=configuration, gpus=12)["first"]["configuration"]  # no multiple of 1 × 8
    assert answer("what_if", configuration=other)["gpus"] == 12


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_best_layouts_rank_only_what_the_interval_of_the_one_shown_can_tell_apart(recompute):
    model = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "seq": 8192}
    shown = model | {"p": 1, "t": 4, "d": 4, "B": 16, "attention": "sdpa", "recompute": recompute}
    interval = answer("what_if", configuration=shown, cluster="h100")["intervals"]["iteration_time"]
    found = answer("best", configuration=shown, cluster="h100")
    assert "Not tried by the search" in found["notes"][-1]
    rows = [(group["kind"], row) for group in found["groups"] for row in group["rows"]]
    assert len(rows) > 3
    for kind, row in rows:
        assert row["differs"]
        inside = interval["low"] <= row["iteration_time"] <= interval["high"]
        assert inside == (kind == "near") or kind == "tight", row
        if kind == "faster":
            assert row["iteration_time"] < interval["low"]


def test_what_the_recipes_of_2021_share_is_told_once():
    chosen = answer("start")["scenarios"][1]
    groups = answer("best", configuration=chosen["configuration"], cluster=chosen["cluster"])["groups"]
    (recipes,) = (group["rows"] for group in groups if group["kind"] == "2021")
    first, second = (row["differs"] for row in recipes)
    assert "recomputation everything" in first
    assert second == "also pipeline schedule Default (1F1B)"


def test_a_timeline_is_a_trace_with_a_slice_for_each_pass():
    configuration = FIGURE_12 | {"B": 24}
    rows = answer("timeline", configuration=configuration)["rows"]
    events = json.loads(answer("trace", configuration=configuration)["trace"])["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == 2 * 24 * configuration["p"]
    first = [slice for slice in slices if slice["tid"] == 1]
    passes = [(start, end) for kind, _, _, start, end in rows[0] if kind in "FB"]
    times = [(event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in first]
    assert times == [pytest.approx(each, abs=1e-8) for each in passes]
    own = json.loads(answer("trace", configuration=configuration, csv="0F0,0B0\n1F0,1B0\n")["trace"])["traceEvents"]
    assert [event["name"] for event in own if event["ph"] == "X"] == ["0F0", "0B0", "1F0", "1B0"]


@pytest.mark.parametrize("lesson", ["bubble", "interleaving"])
def test_a_lesson_s_curve_at_full_size_lies_above_its_formula(lesson):
    full = answer("lesson", id=lesson)["full"]
    points = lessons.LESSONS[lesson]["full"]["points"]
    for simulated, formula, made in zip(full["points"], full["formula"], points, strict=True):
        p, m, v = 12, made.get("B", 24), made.get("v", 1)
        assert formula == {"x": simulated["x"], "y": pytest.approx(100 * (p - 1) / (v * m))}
        assert formula["y"] < simulated["y"]


def test_a_number_of_gpus_that_is_not_legal_names_the_nearest_that_is():
    asked = {"configuration": answer("start")["scenarios"][1]["configuration"], "cluster": "h100", "tokens": "15T"}
    assert answer("what_if", **asked, gpus=500)["nearest"] == 512
    for wrong in ({"gpus": 500}, {"gpus": 7}, {"batch": 1000}, {"batch": 1}):
        told = answer("what_if", **asked, **wrong)
        (name,) = wrong
        assert set(told) == {"refused", "nearest"}
        again = answer("what_if", **asked, **{name: told["nearest"]})
        assert again["status"] in ("ok", "oom"), (wrong, again["reason"])


def test_a_choice_is_answered_at_once_as_the_configuration_that_it_makes():
    asked = {"configuration": answer("start")["scenarios"][1]["configuration"], "cluster": "h100", "tokens": "15T"}
    for choice, changes in (({"gpus": 1024}, {"d": 64}), ({"batch": 512}, {"B": 512})):
        configuration = asked["configuration"] | changes
        after = answer("what_if", **asked | {"configuration": configuration})
        assert answer("what_if", **asked, **choice) == after | {"changes": changes}


def test_a_choice_is_one_simulation_and_no_file_is_read_for_it(monkeypatch):
    simulated = []
    monkeypatch.setattr(what_if, "simulate", lambda *args, **given: simulated.append(args) or simulate(*args, **given))
    answer("what_if", configuration=FIGURE_12, tokens="300B")
    simulated.clear()
    monkeypatch.setattr(opening, "read_text", None)
    assert answer("what_if", configuration=FIGURE_12, tokens="300B", batch=72)["changes"] == {"B": 72}
    assert len(simulated) == 1


def test_what_is_offered_in_the_layout_is_legal_and_what_is_not_says_why():
    for scenario in answer("start")["scenarios"]:
        configuration = scenario["configuration"]
        knobs = answer("knobs", configuration=configuration, cluster=scenario["cluster"])
        gpus = answer("what_if", configuration=configuration, cluster=scenario["cluster"])["gpus"]
        for steps in knobs["steps"].values():
            for changes in filter(None, steps.values()):
                after = answer("what_if", configuration=configuration | changes, cluster=scenario["cluster"])
                assert (after["gpus"], after["status"] != "invalid") == (gpus, True)
        for chip in knobs["chips"]:
            for option in chip["options"]:
                after = answer("what_if", configuration=configuration | option["changes"], cluster=scenario["cluster"])
                struck = bool(chip["reason"]) and not chip["on"] and option["words"] == chip["name"]
                assert (after["status"] == "invalid") == struck, chip
                assert after["gpus"] in (gpus, None)


@pytest.mark.parametrize("name", program_names())
def test_another_program_is_taken_as_the_command_line_takes_it_without_what_it_lacks(name: str):
    """Its answer is that of `reproduce simulate --program`, on as many GPUs, with an interval and whose it is."""
    given = answer("start")["scenarios"][1]["configuration"]
    configuration = answer("programmed", configuration=given, name=name)["configuration"]
    page = answer("what_if", configuration=configuration, cluster="h100")
    plain = {key: value for key, value in configuration.items() if key != "program"}
    alone = evaluate(plain, 1, "h100", program=name)
    assert (page["status"], page["iteration_time"]) == (alone["status"], alone["iteration_time"])
    assert (page["status"] in ("ok", "oom"), page["gpus"]) == (True, 512)
    assert page["intervals"]["iteration_time"] == alone["intervals"]["iteration_time"]
    assert load_program(name).title in page["doubt"]
    assert answer("programmed", configuration=configuration, name="")["configuration"] == plain


def test_experts_and_context_are_chips_with_the_values_that_are_legal():
    experts = {"experts": 8, "experts_per_token": 2, "seq": 8192, "attention": "sdpa"}
    configuration = FIGURE_12 | experts | {"p": 2, "t": 2, "d": 8, "B": 64}
    chips = {chip["name"]: chip for chip in answer("knobs", configuration=configuration)["chips"]}
    assert [option["changes"]["e"] for option in chips["Expert parallel"]["options"]] == [1, 2, 4, 8]
    assert chips["Context parallel"]["options"][1]["changes"] == {"c": 2, "d": 4}


def test_what_would_fit_does():
    large = FIGURE_12 | {"recompute": "none"}
    helps = answer("what_if", configuration=large)["helps"]
    assert helps
    for one in helps:
        after = answer("what_if", configuration=large | one["changes"])
        assert (after["status"], after["peak_memory"]) == ("ok", one["memory"])


@pytest.mark.parametrize("field", ["p", "t", "c", "d"])
def test_a_sweep_of_a_size_keeps_the_number_of_gpus_and_says_how(field):
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


def test_the_command_gives_what_is_shown_and_what_has_no_chart_is_called_a_table():
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


def test_the_zoo_on_another_cluster_says_which_series_are_on_which():
    notes = " ".join(answer("artifact", id="fig_schedule_zoo", cluster="a100-80")["notes"])
    assert "Series that name a cluster are on it (h100); all others are on a100-80." in notes
    assert "Series that name" not in " ".join(answer("artifact", id="fig_schedule_zoo", cluster="selene")["notes"])


def test_the_sources_need_nothing_but_python(tmp_path):
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


def test_the_page_is_filled_in(tmp_path):
    build.build(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy
    assert page.index("<script") > policy.end()  # what stands before it would not be under it
    assert "unsafe-inline" not in policy[1]
    assert "'unsafe-eval'" not in policy[1]
    assert "style-src 'self'" in policy[1]
    assert "style=" not in page
    for path in tmp_path.glob("*.*s"):
        assert not re.search("@[A-Z0-9_]+@", path.read_text(encoding="utf-8"))
    assert not re.search("@[A-Z0-9_]+@", page)


def test_the_published_points_of_figure_12_stand_in_the_page_before_anything_is_computed():
    published = [point.paper["throughput_per_gpu"].value for point in catalog.load("fig_interleaved").points("paper")]
    drawings = re.findall(r'<svg class="published".*?</svg>', home.marks()["@PICTURE@"])
    assert len(drawings) == 2
    for drawing in drawings:
        heights = [float(height) for height in re.findall(r'<circle .*?cy="(.*?)"', drawing)]
        # The rings stand where the values are on an axis from 60 to 160 teraFLOP/s, to a tenth of a pixel.
        lines = [float(height) for height in re.findall(r'class="grid" d="M31 (.*?)H', drawing)]
        drawn = [60e12 + 100e12 * (lines[0] - height) / (lines[0] - lines[-1]) for height in heights]
        assert drawn == pytest.approx(published, abs=0.05e12)


def test_home_has_the_counts_that_verify_gives(as_json):
    """Each claim of the first paper is a cell, by the verdicts of `reproduce verify` on the committed results."""
    counts = as_json("verify", "--paper", "sc21", "--results", REFERENCE, "-q")["counts"]
    marks = home.marks()
    assert marks["@WAFFLE@"].count("<li>") == sum(counts.values()) == int(marks["@CLAIMS@"])
    for verdict, kind in home.KINDS.items():
        assert marks["@WAFFLE@"].count(f'class="v-{kind}"') == counts[verdict]
        assert f'data-kind="{kind}"' in marks["@TALLY@"]
    assert "3.3%" in marks["@TRUST@"]


def test_the_blind_scores_on_the_page_are_those_of_their_page():
    told = " ".join((ROOT / "docs" / "blind.md").read_text(encoding="utf-8").split())
    assert f"| 211 | {home.BLIND_DENSE} |" in told
    assert f"101 of the 401 rows have experts: {home.BLIND_EXPERTS} off" in told
    assert "6.9% off" in home.marks()["@TRUST@"]


def test_a_bar_never_says_what_its_verdict_does_not():
    """A dot in the green of a bar is a claim that holds, or one that is too near to call."""
    seen = 0
    for id in ("fig_interleaved", "table_zero3", "zerobubble/table_4", "megascale/table_2"):
        for claim in answer("claims", id=id)["claims"] if id in catalog.ids() else ():
            if bar := claim["bar"]:
                seen += 1
                inside = bar["value"] >= bar["bound"] if bar["least"] else bar["value"] <= bar["bound"]
                assert inside == (claim["verdict"] == "holds") or claim["verdict"] == "inconclusive"
    assert seen > 3


def test_the_page_has_the_whole_run_and_what_changes_give():
    given = answer("what_if", configuration=FIGURE_12, tokens="300B", price="2.5")
    document = evaluate(FIGURE_12, 1, "selene", run=TrainingRun(300e9, price=2.5), sensitivity=True)
    found, causes = document.pop("elasticities"), document.pop("bubble_times")
    assert causes
    assert {**given, "bubble_times": causes} | json.loads(json.dumps(document)) == {**given, "bubble_times": causes}
    assert {"run_time", "cost", "energy"} <= given["run"].keys()
    told = answer("changes", configuration=FIGURE_12)["changes"]
    assert [each["faster_by"] for each in told] == [each["faster_by"] for each in found]


@pytest.mark.parametrize("scenario", range(3))
def test_what_limits_is_told_by_resources_that_add_up_to_the_iteration(scenario):
    """Each share is what `time_shares` says; memory traffic is what a little less bandwidth makes longer."""
    chosen = answer("start")["scenarios"][scenario]
    configuration, name = chosen["configuration"], chosen["cluster"]
    told = answer("limits", configuration=configuration, cluster=name)
    shares = {part["label"]: part["share"] for part in told["parts"]}
    assert sum(shares.values()) == pytest.approx(1, abs=0.01)  # but for what has less than half a percent
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    (first, second, *_) = shares
    assert told["said"] == f"{first} {shares[first]:.0%}, then {second} {shares[second]:.0%}"
    machine, _ = open_cluster(name)
    slower = dataclasses.replace(machine, memory_bandwidth=machine.memory_bandwidth / 1.02)
    config = TrainingConfig.from_plain(configuration)
    before, after = (time_shares(simulate(config, each), each) for each in (machine, slower))
    more = sum(after[use] - before[use] for use in ("computation", "recomputation"))
    seconds = simulate(config, machine).iteration_time
    assert more / 0.02 / seconds == pytest.approx(shares["memory traffic"], rel=0.05)  # some kernels change sides
    assert shares["layers’ sums over NVLink"] == pytest.approx(before["tensor-parallel communication"] / seconds)


@pytest.mark.parametrize(("name", "cluster"), [("llama-3-70b", "h100"), ("llama-3-8b", "selene"), ("1t", "h100")])
def test_another_model_gets_a_layout_of_its_own_on_as_many_gpus(name, cluster):
    """Nothing of GPT-3's layout and batch is left: these are by the paper's takeaways, which fit."""
    before = answer("start")["scenarios"][1]["configuration"]
    told = answer("modelled", configuration=before, name=name, cluster=cluster)
    after = answer("what_if", configuration=told["configuration"], cluster=cluster)
    assert (after["gpus"], after["status"]) == (512, "ok")
    sizes = answer("start")["models"][name]
    assert {key: told["configuration"].get(key, value) for key, value in sizes.items()} == sizes
    assert 3e6 < told["configuration"]["B"] * sizes["seq"] < 6e6
    _, job = request({**sizes, "gpus": 512, "batch": told["configuration"]["B"]})
    chosen = takeaways(job, open_cluster(cluster)[0]).chosen.config.parallel
    assert [told["configuration"][size] for size in "ptdb"] == [chosen.p, chosen.t, chosen.d, chosen.b]
    assert "by the paper’s takeaways" in told["said"]


def test_another_model_gets_a_layout_on_a_number_of_gpus_that_the_one_shown_cannot_have():
    told = answer("modelled", configuration=FIGURE_12, name="llama-3-70b", cluster="h100", gpus=256)
    after = answer("what_if", configuration=told["configuration"], cluster="h100")
    assert (after["gpus"], after["status"]) == (256, "ok")


def test_a_model_that_does_not_fit_gets_the_layout_of_least_memory():
    told = answer("modelled", configuration=FIGURE_12, name="llama-3-405b")
    assert "with the least memory" in told["said"]
    assert answer("what_if", configuration=told["configuration"])["status"] == "oom"


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"hidden": 0}, "hidden", "Hidden size 0 is not a positive whole number"),
        ({"heads": 7}, "heads", "Hidden size 12288 is not divisible by attention heads 7"),
        ({"attention": "warp"}, "attention", "Attention warp is unknown"),
        ({"program": "nope"}, "program", "Training program nope is unknown"),
        ({"speed": 7}, "speed", "Speed is no field of a configuration"),
    ],
)
def test_a_refused_value_is_told_by_its_field_and_what_is_legal_is_offered_instead(changes, field, sentence):
    told = answer("what_if", configuration=FIGURE_12 | changes, tokens="300B")
    assert told["status"] == "invalid"
    assert told["wrong"][field].startswith(sentence)
    instead = answer("what_if", **told["instead"])
    assert (instead["status"], instead["gpus"]) == ("ok", 96)
    assert told["instead"]["tokens"] == "300B"


def test_an_amount_that_is_none_is_told_by_its_field_and_a_machine_that_there_is_not_as_an_error():
    told = answer("what_if", configuration=FIGURE_12, tokens="much", price="2")
    assert told["wrong"].keys() == {"tokens"}
    assert "'much' is no amount" in told["wrong"]["tokens"]
    assert told["instead"] == {"configuration": told["instead"]["configuration"], "tokens": "", "price": "2"}
    assert told["instead"]["configuration"].items() >= FIGURE_12.items()
    assert "issing 'layers'" in answer("what_if", configuration={"p": 7})["wrong"]["configuration"]
    assert "is unknown; needs one of" in error("what_if", configuration=FIGURE_12, cluster="nix")


def test_that_nothing_fits_is_told_in_words():
    said = error("best", configuration=answer("start")["scenarios"][1]["configuration"], cluster="h100", gpus=8)
    assert re.match(
        r"Nothing fits: on 8 GPUs no layout needs less than [\d.]+ GB of a GPU, which has 80.5; try \d+ GPUs", said
    )
    assert "=" not in said


def test_an_answer_says_what_of_a_gpu_s_memory_is_used_and_what_an_iteration_consists_of():
    given = answer("what_if", configuration=FIGURE_12)
    assert sum(part["size"] for part in given["memory"]) == pytest.approx(given["peak_memory"] / 1e9, rel=1e-12)
    assert given["peak_memory"] < given["capacity"] == 80.2e9
    assert sum(phase["size"] for phase in given["phases"]) == pytest.approx(given["iteration_time"], rel=1e-12)
    assert given["notes"] == ["61% trains the model", "it fits, 41.9 GB to spare", "38.3 GB of 80.2 GB are needed"]
    assert given["brief"] == "32% · 38.3 of 80.2 GB"
    run = answer("what_if", configuration=FIGURE_12, tokens="300B", price="2.5")
    assert (run["headline"]["words"], run["headline"]["unit"]) == ("Training on 300 billion tokens takes", "days")
    assert [fact[0] for fact in run["facts"]] == ["An iteration", "Of peak (MFU)", "Cost", "Energy"]
    low, high = (run["run"]["intervals"]["cost"][end] for end in ("low", "high"))
    assert run["facts"][2][2:] == ["USD", f"{low:,.0f} to {high:,.0f}"]  # as `simulate` and `plan` write money
    assert answer("what_if", configuration=FIGURE_12 | {"recompute": "none"})["status"] == "oom"


def test_two_configurations_side_by_side_have_the_numbers_of_each_and_only_what_differs():
    other = {"configuration": FIGURE_12, "cluster": "selene"}
    compared = answer("compare", configuration=FIGURE_12 | {"B": 120, "d": 2}, other=other)
    assert {each["name"]: each["values"] for each in compared["differences"]} == {"d": ["1", "2"], "B": ["60", "120"]}
    alone = answer("what_if", configuration=FIGURE_12 | {"B": 120, "d": 2})["iteration_time"]
    assert compared["metrics"][0][1:3] == [f"{alone:.2f}", "13.75"]
    assert compared["ends"][1] - compared["ends"][0] == pytest.approx(13.75 - alone, abs=0.01)
    assert compared["heading"].startswith("The one you kept takes ")
    spelt_out = FIGURE_12 | {"d": 1, "schedule": "", "recompute": "full"}
    same = answer("compare", configuration=spelt_out, other=other)
    assert same["differences"] == []
    slower = answer("compare", configuration=FIGURE_12, other=other, changes={"hca_bandwidth": 1.3e10})
    assert [each["values"] for each in slower["differences"]] == [["17 GB/s", "13 GB/s"]]
    elsewhere = answer("compare", configuration=FIGURE_12, other=other, cluster="h100")
    assert [each["values"] for each in elsewhere["differences"]] == [["selene", "h100"]]


@pytest.mark.parametrize("field", ["t", "B", "hidden", "recompute", "schedule", "sequence_parallel"])
def test_a_sweep_simulates_legal_values_of_one_field_among_them_the_present_one(field):
    configuration = FIGURE_12 | {"recompute": "full", "schedule": "", "sequence_parallel": False}
    points = answer("sweep", configuration=configuration, field=field)["points"]
    assert 2 <= len(points) <= 14
    assert configuration[field] in [point["value"] for point in points]
    for point in points:
        alone = answer("what_if", configuration=configuration | point["changes"])
        assert point["iteration_time"] == alone["iteration_time"]
        assert point["status"] == alone["status"] != "invalid"


def test_every_scenario_fits_on_its_cluster_and_says_how_many_gpus_it_takes():
    for scenario in answer("start")["scenarios"]:
        given = answer("what_if", **{name: scenario[name] for name in ("cluster", "configuration", "tokens")})
        assert given["status"] == "ok", scenario["title"]
        assert f"{given['gpus']:,}" in scenario["title"]


def test_every_lesson_s_guess_is_right_by_what_is_simulated_or_executed():
    lessons = {entry["id"]: answer("lesson", id=entry["id"]) for entry in answer("start")["lessons"]}
    assert len(lessons) == 7
    for lesson in lessons.values():
        assert len(lesson["said"]) == len(lesson["stops"]) == len(lesson["curve"]["values"])
        for quiz in lesson["quizzes"]:
            assert 0 <= quiz["right"] < len(quiz["options"])
            assert len({value + means for value, means, _ in quiz["options"]}) == len(quiz["options"])
    bubble = lessons["bubble"]["curve"]["values"]
    assert bubble == [pytest.approx(100 * 3 / m) for m in (4, 8, 16, 32)]  # (p-1)/m
    assert lessons["interleaving"]["curve"]["values"] == [pytest.approx(100 * 3 / (8 * v)) for v in (1, 2, 4)]
    shown = [row for quiz in lessons["wrong"]["quizzes"][:1] for row in quiz["options"]]
    assert shown[1] == ["1F1B takes", "71 steps where GPipe takes 78", "wrong: both take 78"]
    assert "8 microbatches, GPipe 32" in shown[2][1]
    assert "needs one of bubble, interleaving" in error("lesson", id="bubbel")


def test_a_schedule_of_one_s_own_is_drawn_from_its_table():
    timeline = answer("own", text="0F0,0B0\n1F0,1B0\n")
    assert [[box[0] for box in row] for row in timeline["rows"]] == [["F", "B"], ["F", "B"]]
    assert timeline["iteration_time"] == 6
    assert error("own", text="0F0,0B0\n1F0,1B1\n")


def test_a_moment_says_who_works_and_who_waits():
    told = answer("moment", configuration=FIGURE_12, time=1.0)
    assert told["sentence"] == "At 1.00 s stages 10, 11 and 12 work; the other 9 wait"
    assert told["detail"].startswith("Stage 1 waits 1.54 s")
    assert told["detail"].endswith("Stage 1 holds 12, stage 12 1.")


def test_a_moment_of_a_schedule_of_one_s_own_says_who_works_in_units():
    told = answer("moment", configuration={}, time=0.5, csv="0F0,0B0\n1F0,1B0\n")
    assert told == {
        "sentence": "At 0.50 units stage 1 works; the other one waits",
        "detail": "Stage 1 holds 1, stage 2 0.",
    }


def test_the_marks_of_a_figure_are_told_of_those_that_it_has():
    told = {id: answer("artifact", id=id)["reading"] for id in ("fig_interleaved", "fig_bubble")}
    assert [mark for mark, _, _ in told["fig_interleaved"]] == ["dot", "ring", "band"]
    assert told["fig_interleaved"][2][2].endswith("6.7% below to 7.2% above.")
    assert told["fig_bubble"][0][2] == "By a formula, just now."
    assert "own machine" in answer("artifact", id="fig_interleaved", cluster="h100")["reading"][1][2]


def test_numbers_of_a_cluster_are_shown_in_units_that_people_read():
    numbers = {number["name"]: number for number in answer("cluster", name="selene")["numbers"]}
    shown = {name: (number["value"] / number["shown"][1], number["shown"][0]) for name, number in numbers.items()}
    assert shown["peak_flops"] == (312.0, "TFLOP/s")
    assert shown["hca_bandwidth"] == (17.0, "GB/s")
    assert shown["network_latency"] == (pytest.approx(20.0), "µs")
    assert shown["gpus_per_node"] == (8.0, "")
    assert numbers["nvlink_p2p_bandwidth"]["words"] == "NVLink point-to-point bandwidth"


def test_a_package_that_was_fetched_once_needs_no_npm_unless_a_file_of_it_was_changed(tmp_path, monkeypatch):
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


def test_the_recipe_of_2021_is_what_the_paper_s_takeaways_choose_for_as_many_gpus_and_the_batch():
    chosen = answer("start")["scenarios"][1]
    configuration, cluster = chosen["configuration"], chosen["cluster"]
    recipe = answer("recipe", configuration=configuration, cluster=cluster)["configuration"]
    _, job = request(
        {key: configuration[key] for key in MODEL_FIELDS if key in configuration} | {"gpus": 512, "batch": 1024}
    )
    assert recipe == json.loads(json.dumps(takeaways(job, open_cluster(cluster)[0]).chosen.config.to_plain()))
    assert "attention" not in recipe  # not fused, as the default is
    assert "no layout of this model that fits" in error("recipe", configuration=FIGURE_12 | {"p": 1, "B": 8})
