"""What is said to someone whose configuration does not fit: each change is tried, and no cheaper one is missed."""

import pytest

from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import simulate
from reproduce.cli import main
from reproduce.planning.advice import advice
from reproduce.planning.what_if import configuration, evaluate

LLAMA = {"model": "llama-3-8b", "seq": 8192, "d": 8, "B": 8, "recompute": "none", "attention": "sdpa"}
QWEN3 = {"model": "qwen3-235b-a22b", "seq": 4096, "t": 4, "p": 4, "etp": 1, "sequence_parallel": True, "B": 64}
QWEN3 |= {"recompute": "full", "attention": "sdpa", "sharded_optimizer": True}


def test_changes_fit_are_what_simulate_says_and_the_fastest_of_their_number():
    config, cluster = configuration(LLAMA, "h100")
    estimate = simulate(config, cluster)
    assert not estimate.fits
    found = advice(estimate, cluster)
    assert [each.slower_by for each in found] == sorted(each.slower_by for each in found)
    for each in found:
        again = evaluate(LLAMA | each.fields, 1, "h100")
        assert (again["status"], again["gpus"]) == ("ok", 8)
        assert again["iteration_time"] == each.estimate.iteration_time
    times = [float("inf")]
    for fields in ({"sharded_optimizer": True}, {"data_parallel": "zero3"}, {"recompute": "full"}, {"t": 2, "d": 4}):
        try:
            tried = simulate(configuration(LLAMA | fields, "h100")[0], cluster)
        except ConfigurationError:
            continue
        times += [tried.iteration_time] if tried.fits else []
    assert found[0].estimate.iteration_time <= min(times)


def test_several_changes_where_one_does_not_do():
    point = {"model": "llama-3-70b", "seq": 8192, "d": 8, "t": 8, "B": 64, "recompute": "none", "attention": "sdpa"}
    answer = evaluate(point, 1, "h100", sensitivity=True)
    assert answer["status"] == "oom"
    assert {len(each["fields"]) >= 2 for each in answer["advice"]} == {True}
    assert f"{answer['advice'][0]['peak_memory'] / 1e9:.1f} GB" in answer["reason"]
    assert answer["elasticities"]


def test_what_nearly_fits_is_too_close_to_say():
    """Llama 3's 16 stages of 8 chunks ran on 16,384 GPUs; simulated they need 3% more than there is."""
    point = {"model": "llama-3.1-405b", "seq": 8192, "t": 8, "p": 16, "d": 128, "B": 2048, "v": 8, "recompute": "none"}
    point |= {"attention": "sdpa", "sequence_parallel": True, "data_parallel": "zero2", "sharded_optimizer": True}
    answer = evaluate(point | {"pipeline_layout": "E|(t|)*126L"}, 1, "h100")
    assert answer["status"] == "oom"
    assert "too close to say: memory may be 1.19 times less" in answer["reason"]
    assert "too close" not in evaluate(point | {"p": 2, "d": 1024, "v": 1}, 1, "h100")["reason"]


def test_nothing_helps_says_so():
    answer = evaluate({"layers": 64, "hidden": 65536, "heads": 64, "B": 1}, 1, "h100")
    assert answer["reason"].endswith("no three changes on these GPUs make it fit; try more GPUs")
    assert answer["advice"] == []


@pytest.mark.parametrize(
    ("sizes", "billions", "status"), [({"d": 4, "e": 16}, 66.1, "ok"), ({"d": 2, "e": 8}, 132, "oom")]
)
def test_qwen3_235b_static_memory(sizes, billions, status):
    """THUDM/slime#280: 18 bytes a parameter on 64 GPUs fit, on 32 not without the optimizer on the host."""
    answer = evaluate(QWEN3 | sizes, 1, "h100")
    assert answer["status"] == status
    states = sum(answer["memory_bytes"][use] for use in ("weights", "gradients", "optimizer"))
    assert states / 1e9 == pytest.approx(billions, rel=0.08)
    if status == "oom":
        assert [each["fields"] for each in answer["advice"]] == [{"offload": "optimizer"}]


@pytest.mark.slow
def test_a_plan_that_fits_nothing_says_what_is_not_searched_and_would(refused):
    words = ["--model", "qwen3-235b-a22b", "--seq", "4096", "--gpus", "32", "--batch", "64", "--cluster", "h100"]
    line = refused("plan", *words, code=9)
    assert "or what is not searched: offload=optimizer: " in line
    assert "(--allow offload_optimizer)" in line


def test_several_numbers_of_gpus_on_which_nothing_fits_have_the_advice_of_the_last(capsys):
    assert main(["plan", "--model", "llama-3-70b", "--gpus", "2,4", "--batch", "8", "--cluster", "h100"]) == 9
    table, said = capsys.readouterr()
    assert table.count("nothing fits") == 2
    assert said.startswith("reproduce: nothing fits: of all legal configurations on 4 GPUs")


def test_what_fits_is_too_close_to_say_as_what_does_not(simulated_points):
    """The margin of memory goes both ways: 1.19 times more than 75.6 of 80.5 GB would not fit."""
    point = {"model": "qwen2.5-32b", "B": 8, "data_parallel": "zero3", "recompute": "full", "attention": "sdpa"}
    near, far = simulated_points([point | {"d": d, "B": d} for d in (8, 16)], "--cluster", "h100")
    assert near["status"] == far["status"] == "ok"
    assert near["reason"].endswith("; whether it fits is too close to say: memory may be 1.19 times more")
    assert "too close" not in far["reason"]


def test_the_schema_has_it(simulated_points):
    (point,) = simulated_points([LLAMA], "--cluster", "h100")
    assert point["advice"]
