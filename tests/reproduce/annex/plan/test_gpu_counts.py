"""Several numbers of GPUs: each row is what a plan on it finds, and the smallest that meets a limit is named."""

from dataclasses import replace

import pytest

from ptdp_core.simulator import load_cluster
from reproduce.annex.plan.gpu_counts import Limits, counts, on_each, sentence, smallest, table
from reproduce.output.tables import print_table
from reproduce.output.terminal import console
from reproduce.planning.plan import make_plan, request
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.untried import may_use
from results.records.errors import UsageError

MODEL = {"layers": 8, "hidden": 2048, "heads": 16, "seq": 2048}
WORDS = [word for name, value in MODEL.items() for word in (f"--{name}", str(value))]
JOB = [*WORDS, "--batch", "32", "--cluster", "h100", "--forbid", "split"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("64", [64]), ("8..64", [8, 16, 32, 64]), ("8,24,16", [8, 16, 24]), ("1..3,12", [1, 2, 12]), ("6..6", [6])],
)
def test_numbers_of_gpus(text, numbers):
    assert counts(text) == numbers


@pytest.mark.parametrize("text", ["", "many", "0", "64..8", "8..", "-8", "8,,9", "1..1000001"])
def test_what_is_no_number_of_gpus(text):
    with pytest.raises(UsageError, match="is out of range; needs 1 to 1000000, a number, several"):
        counts(text)


def test_each_is_the_plan_s_best_and_the_fewest_that_do_are_found():
    cluster, run = load_cluster("h100"), TrainingRun(1e11, price=2.0)
    name, job = request({**MODEL, "gpus": 1, "batch": 32})
    used, techniques = may_use(cluster, job.model, (), ("split",))
    found = on_each(job, used, [4, 8, 16], techniques, run=run)
    assert [each.why for each in found] == ["", "", ""]
    _, alone = request({**MODEL, "gpus": 8, "batch": 32})
    best = make_plan(name, alone, cluster, "h100", 1, forbid=("split",)).best
    assert found[1].best is not None
    assert found[1].best.iteration_time == best.iteration_time
    days = [each.run["run_time"] for each in found if each.run]
    assert days == sorted(days, reverse=True)
    assert smallest(found, Limits(days=(days[0] + days[1]) / 2)) == found[1]
    assert smallest(found, Limits(days=days[-1] / 2)) is None
    costs = [each.run["cost"] for each in found if each.run]
    assert smallest(found, Limits(budget=max(costs))) == found[0]
    assert "cost" not in sentence(found, Limits(days=days[0] + 1))
    assert sentence(found, Limits(budget=max(costs))).endswith(
        f"; {found[-1].gpus} are the fastest, {days[-1]:.1f} days"
    )
    dear = [replace(found[0], run={**found[0].run, "cost": 1e9}), *found[1:]]
    assert sentence(dear, Limits(days=days[0] + 1)).endswith(f"; {found[1].gpus} cost least, {costs[1]:,.0f} USD")
    near = min(zip(costs, found, strict=True))
    assert sentence(found, Limits(budget=near[0] / 2)) == (
        f"none of these meets {near[0] / 2:,.0f} USD: nearest are {near[1].gpus} GPUs, {near[0]:,.0f} USD; "
        "try more money or fewer tokens"
    )
    assert "try more GPUs or fewer tokens" in sentence(found, Limits(days=min(days) / 2))


def test_80_columns_have_what_a_limit_was_asked_for(capsys):
    """The column `meets` was left out, as the configurations stood before it."""
    cluster, (_, job) = load_cluster("h100"), request({**MODEL, "gpus": 4, "batch": 32})
    used, techniques = may_use(cluster, job.model, (), ("split",))
    found = on_each(job, used, [4], techniques, run=TrainingRun(1e11, price=2.0))
    limits = Limits(days=found[0].run["run_time"] * 1.01)
    print_table(console(80), table(found, cluster, limits))
    assert "yes, perhaps not (up to " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(days=120), "yes, perhaps not (up to 148 days)"),
        (Limits(days=148), "yes, in all its interval"),
        (Limits(days=95), "no, perhaps yes (from 90 days)"),
        (Limits(days=80), "no"),
        (Limits(days=148, budget=1200), "yes, perhaps not (up to 1,480 USD)"),
        (Limits(days=120, budget=1200), "yes, perhaps not (up to 148 days and 1,480 USD)"),
        (Limits(days=95, budget=800), "no"),
        (Limits(days=95, budget=1200), "no, perhaps yes (from 90 days)"),
    ],
)
def test_a_limit_is_met_in_all_the_interval_or_perhaps_not(limits, said):
    intervals = {"run_time": {"low": 90.0, "high": 148.0}, "cost": {"low": 900.0, "high": 1480.0}}
    answer = {"run_time": 100.0, "cost": 1000.0}
    assert limits.judged(answer | {"intervals": intervals}) == said
    assert limits.judged(answer | {"intervals": {}}) == said.split(",")[0]


def test_the_command_draws_and_says_it(tmp_path, said, as_json):
    picture = tmp_path / "days.svg"
    asked = ["--tokens", "100B", "--price", "2", "--deadline", "10d", "--gpus", "4,5,8", "--plot", str(picture)]
    printed = said("plan", *JOB, *asked)
    assert "no d divides batch 32" in printed or "p=5" in printed
    assert "GPUs are the fewest of these that meet 10 days" in printed
    assert b"deadline" in picture.read_bytes()
    found = as_json("plan", *JOB, *asked)
    assert [row["gpus"] for row in found["counts"]] == [4, 5, 8]
    assert found["smallest"] in (4, 5, 8)
