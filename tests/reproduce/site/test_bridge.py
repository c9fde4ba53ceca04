"""What the page asks Python for: the numbers of `reproduce`, errors of one line, and nothing that a browser lacks."""

import dataclasses
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig
from reproduce.analysis.planning.search import NEAR_TIE
from reproduce.analysis.run_cost import TrainingRun
from reproduce.analysis.what_if import evaluate
from reproduce.experiment import catalog
from reproduce.running import runner
from reproduce.site import bridge, build

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


def test_every_artifact_is_offered() -> None:
    assert [entry["id"] for entry in answer("artifacts")["artifacts"]] == list(catalog.ids())


def test_every_field_of_a_configuration_is_offered_and_texts_with_their_choices() -> None:
    fields = answer("start")["fields"]
    assert list(fields) == [field.name for part in (ModelConfig, ParallelConfig) for field in dataclasses.fields(part)]
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
        assert "is not a positive" in answer("what_if", configuration=FIGURE_12 | {name: least - 1})["reason"]


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


def test_the_sources_need_nothing_but_python(tmp_path: Path) -> None:
    for place, text in json.loads(build.sources()).items():
        path = tmp_path / place.removeprefix(f"{build.PLACE}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    code = (
        f"import sys, json; sys.path.insert(0, {str(tmp_path)!r}); from reproduce.site import bridge; "
        "print(json.loads(bridge.call('artifact', json.dumps({'id': 'fig_interleaved'})))['answer']['label'])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Figure 12\n"), done.stderr


def test_the_page_is_filled_in(tmp_path: Path) -> None:
    build.build(tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "https://cdn.jsdelivr.net/npm/d3@" in page
    assert page.count('integrity="sha384-') == 2
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="(.*)">', page)
    assert policy
    assert page.index("<script") > policy.end()  # what stands before it would not be under it
    assert "unsafe-inline" not in policy[1]
    assert "'unsafe-eval'" not in policy[1]
    for script in re.findall(r"<script src=\"(.*?)\"", page):  # each library by its whole address
        assert f" {script} " in policy[1].replace(";", " ;")
    for path in tmp_path.glob("*.*s"):
        assert not any(mark in path.read_text(encoding="utf-8") for mark in ("@RUNTIME@", "@D3@", "@VERSION@"))


def test_the_page_has_the_whole_run_and_what_limits_it() -> None:
    given = answer("what_if", configuration=FIGURE_12, tokens="300B", price="2.5", sensitivity=True)
    document = evaluate(FIGURE_12, 1, "selene", run=TrainingRun(300e9, price=2.5), sensitivity=True)
    assert given == json.loads(json.dumps(document))
    assert {metric["name"] for metric in answer("start")["of_run"]} <= given["run"].keys()
    assert "'much' is no amount" in error("what_if", configuration=FIGURE_12, tokens="much")
