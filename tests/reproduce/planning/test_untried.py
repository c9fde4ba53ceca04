"""What the search does not try is said with what it would give: the numbers are those of `reproduce simulate`."""

import json
from dataclasses import asdict

import pytest

from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.software import PAPER
from reproduce.cli import main
from reproduce.planning.plan import TrainingPlan, make_plan, request
from reproduce.planning.untried import LEAST_GAIN, sentence
from reproduce.planning.what_if import evaluate

# Public jobs at which ZeRO-3 is faster than all that is searched, with the seconds that `simulate` gives it.
FASTER = [("llama-3-8b", 8192, 16, 0.765), ("llama-3-8b", 8192, 64, 0.765), ("qwen2.5-32b", 4096, 8, 1.949)]
MIXTURE = {"layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn_hidden": 2048, "vocab": 32000, "seq": 4096}
MIXTURE |= {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False, "tied_embeddings": False}
MIXTURE |= {"experts": 64, "experts_per_token": 8}


def planned(cluster: str, **asked: object) -> TrainingPlan:
    name, job = request(asked)
    return make_plan(name, job, load_cluster(cluster), cluster, 1)


@pytest.mark.parametrize(("model", "seq", "gpus", "seconds"), FASTER)
def test_zero_3_is_said_to_be_faster_where_it_is(model: str, seq: int, gpus: int, seconds: float) -> None:
    plan = planned("h100", model=model, seq=seq, gpus=gpus, batch=gpus)
    (zero_3,) = (one for one in plan.untried if one.what == "ZeRO-3")
    assert zero_3.estimate is not None
    assert zero_3.estimate.iteration_time == pytest.approx(seconds, abs=0.001)
    assert zero_3.gains
    assert zero_3.estimate.config.parallel.n == gpus
    assert f"ZeRO-3 {zero_3.faster_by:+.1%} ({seconds:.3f} s)" in sentence(plan.untried)


def test_every_change_is_what_simulate_says_of_it_and_no_gaining_switch_is_left_out() -> None:
    plan = planned("h800", **MIXTURE, gpus=64, batch=64)
    cluster, base = load_cluster("h800"), asdict(plan.best.config.model) | asdict(plan.best.config.parallel)
    on = [name for name, value in vars(cluster.software).items() if value]
    for one in plan.untried:
        if one.estimate is not None:
            point = {**base, **one.fields, "software": [*on, *one.software]}
            assert evaluate(point, 1, "h800")["iteration_time"] == one.estimate.iteration_time, one.what
    names = [one.what for one in plan.untried]
    assert {"deduplicated_dispatch", "overlapped_exchange"} <= set(names)
    assert any(name.startswith("FP8") for name in names)
    for name in vars(PAPER):
        faster = evaluate({**base, "software": sorted({*on, name})}, 1, "h800")["iteration_time"]
        assert (name in names) == (plan.best.iteration_time / faster - 1 >= LEAST_GAIN and name not in on), name
    *single, together = plan.untried
    assert together.what == "these together"
    assert together.faster_by > max(one.faster_by for one in single)


def test_the_plan_says_it_loudly_everywhere(tmp_path, capsys) -> None:
    job = ("--model", "llama-3-8b", "--gpus", "16", "--batch", "16", "--cluster", "h100", "--results", str(tmp_path))
    assert main(["plan", *job]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "NOT TRIED by the search, here simulated on rank 1, tokens/s: FP8" in printed
    (folder,) = (tmp_path / "plan").iterdir()
    assert "**NOT TRIED by the search" in (folder / "table.md").read_text()
    assert any(note.startswith("NOT TRIED") for note in json.loads((folder / "record.json").read_text())["notes"])
    assert main(["plan", *job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["not_tried"]
    assert [one["change"] for one in found if one["fields"].get("data_parallel") == "zero3"] == ["ZeRO-3"]


def test_what_cannot_be_says_why() -> None:
    plan = planned("selene", model="175b", gpus=1024, batch=1536)
    said = sentence(plan.untried)
    assert "ZeRO-3 (1024 GPUs do not divide the batch)" in said
    assert "FP8 (none on selene)" in said
