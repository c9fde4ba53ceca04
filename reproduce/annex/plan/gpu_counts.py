"""How many GPUs? The best configuration on each of several numbers of GPUs, and the smallest that meets a limit."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ptdp_core.simulator import Cluster, Estimate
from reproduce.experiment.metrics import METRICS
from reproduce.output.columns import Table, keyed
from reproduce.planning import run_cost
from reproduce.planning.amounts import amount
from reproduce.planning.cells import Techniques
from reproduce.planning.plan import LIMITS
from reproduce.planning.plan_text import sizes
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.search import HEADROOM, search
from reproduce.planning.space import TrainingJob, grids
from results.records.errors import UsageError

ANY = "8..8192"  # what is tried for a limit, if no numbers are given
LIMITED = {"run_time": "{:.0f} days", "cost": "{:,.0f} USD"}  # what a limit is of, and how it is told
UNITS = {"h": 1 / 24, "d": 1.0, "w": 7.0}  # days
COLUMNS = (
    *keyed("GPUs"),
    *keyed("days", form=".1f"),
    *keyed("cost", unit="USD", form=",.0f"),
    *keyed("meets"),
    *keyed("iteration", unit="s", form=".3f"),
    *keyed("MFU", unit="%", form=".1f", factor=0.01),
    *keyed("tokens/s", unit="per GPU", form=".0f"),
    *keyed("speed-up", form=".2f"),
    *keyed("memory", unit="GB", form=".1f", factor=1e9),
    *keyed("best configuration"),
)


def counts(text: str) -> list[int]:
    """The numbers of GPUs that a text names: '64', '64,96,128', or '64..1024', doubled from the first on.

    Raises `UsageError`.
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\.\.(\d+))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= LIMITS["gpus"]:
            raise UsageError(
                f"gpus={text} is out of range; needs 1 to {LIMITS['gpus']}, a number, several as 64,96 or doubled ones "
                f"as 64..1024; try --gpus {'64..1024' if '..' in text else '64,96' if ',' in text else '64'}"
            )
        while first <= last:
            found.append(first)
            first *= 2
    return sorted(dict.fromkeys(found))


@dataclass(frozen=True)
class Limits:
    """At most so many days, and so much money, for a whole run; None for no limit."""

    days: float | None = None
    budget: float | None = None

    @classmethod
    def of(cls, deadline: str | None, budget: str | None, run: TrainingRun | None) -> "Limits":
        """Of '30d' (h, d or w) and '2M'. Raises `UsageError`, also where what they limit is not known."""
        if (deadline or budget) and run is None:
            raise UsageError("--deadline and --budget are of a whole run; needs --tokens, too; try --tokens 1T")
        if budget and run and run.price is None:
            raise UsageError("--budget without --price; needs the USD of a GPU's hour; try --price 2.5")
        if deadline and deadline[-1] not in UNITS:
            raise UsageError(f"--deadline {deadline}: needs a number of h, d or w; try --deadline 30d")
        days = amount(deadline[:-1]) * UNITS[deadline[-1]] if deadline else None
        return cls(days, amount(budget) if budget else None)

    def exceeded(self, answer: Mapping[str, Any]) -> list[str]:
        """The names of a run's numbers, as in its document, that are outside of them."""
        limits = {"run_time": self.days, "cost": self.budget}
        return [name for name, limit in limits.items() if limit is not None and answer[name] > limit]

    def met(self, answer: Mapping[str, Any]) -> bool:
        """Whether a run's document is inside of them."""
        return not self.exceeded(answer)

    def judged(self, answer: Mapping[str, Any]) -> str:
        """The same in words, with whether it is so in all of the intervals: 'yes, perhaps not (up to 148 days)'."""
        low, high = (
            {name: answer["intervals"].get(name, {}).get(end, answer[name]) for name in LIMITED}
            for end in ("low", "high")
        )

        def told(names: Iterable[str], ends: Mapping[str, Any]) -> str:
            return " and ".join(LIMITED[name].format(ends[name]) for name in names)

        if over := self.exceeded(answer):
            return f"no, perhaps yes (from {told(over, low)})" if self.met(low) else "no"
        if over := self.exceeded(high):
            return f"yes, perhaps not (up to {told(over, high)})"
        return "yes, in all its interval" if answer["intervals"] else "yes"


@dataclass(frozen=True)
class OnGpus:
    """The best on so many GPUs, and its whole run, if asked for; without one, why."""

    gpus: int
    best: Estimate | None
    run: dict[str, Any] | None = None
    why: str = ""


def on_each(
    job: TrainingJob,
    cluster: Cluster,
    numbers: Iterable[int],
    techniques: Techniques,
    headroom: float = HEADROOM,
    run: TrainingRun | None = None,
    on_step: Callable[[int], None] = lambda done: None,
) -> list[OnGpus]:
    """The best of all configurations on each number of GPUs, by a search of its own."""
    found = []
    for number in numbers:
        asked = replace(job, n=number)
        ranked = search(asked, cluster, 1, techniques, headroom=headroom, on_step=on_step).ranked
        if ranked:
            answer = run_cost.document(ranked[0], cluster, run) if run else None
            found.append(OnGpus(number, ranked[0], answer))
        else:
            divides = any(job.B % d == 0 for *_, d in grids(asked, cluster.gpus_per_node))
            found.append(OnGpus(number, None, why="nothing fits" if divides else f"no d divides batch {job.B}"))
    return found


def smallest(found: Sequence[OnGpus], limits: Limits) -> OnGpus | None:
    """The first that is inside of the limits."""
    return next((each for each in found if each.run is not None and limits.met(each.run)), None)


def table(found: Sequence[OnGpus], cluster: Cluster, limits: Limits) -> Table:
    """A row for each number of GPUs; the speed-up is over the smallest on which anything fits."""
    first = next((each.best for each in found if each.best), None)
    rows = []
    for each in found:
        row: dict[str, Any] = {"GPUs": each.gpus, "best configuration": each.why}
        if each.best is not None and first is not None:
            row |= {"best configuration": sizes(each.best.config.parallel), "iteration": each.best.iteration_time}
            row |= {"tokens/s": METRICS["tokens_per_s_per_gpu"].simulated(each.best, cluster)}
            row |= {"MFU": each.best.model_flops_utilization, "memory": each.best.peak_memory}
            row |= {"speed-up": first.iteration_time / each.best.iteration_time}
        if each.run is not None:
            row |= {"days": each.run["run_time"], "cost": each.run["cost"]}
            row |= {"meets": limits.judged(each.run)}
        rows.append(row)
    runs = [each.run for each in found if each.run]
    shown = {"days": bool(runs), "cost": any(run["cost"] for run in runs), "meets": limits != Limits()}
    return Table([column for column in COLUMNS if shown.get(column.what, True)], rows)


def sentence(found: Sequence[OnGpus], limits: Limits) -> str:
    """The smallest number of GPUs that meets the limits, in a sentence, the cheapest, and of a budget the fastest."""
    if limits == Limits():
        return ""
    days, budget = limits.days, limits.budget
    asked = ([f"{days:g} days"] if days is not None else []) + ([f"{budget:,.0f} USD"] if budget is not None else [])
    both = " and ".join(asked)
    if (least := smallest(found, limits)) is None or least.run is None:
        runs = [(each.run["cost" if days is None else "run_time"], each.gpus) for each in found if each.run]
        name, fix = ("cost", "more money") if days is None else ("run_time", "more GPUs")
        near = f": nearest are {min(runs)[1]} GPUs, {LIMITED[name].format(min(runs)[0])}" if runs else ""
        return f"none of these meets {both}{near}; try {fix} or fewer tokens"
    cost = f", {least.run['cost']:,.0f} USD" if least.run["cost"] is not None else ""
    said = f"{least.gpus} GPUs are the fewest of these that meet {both}: {least.run['run_time']:.1f} days{cost}"
    said += f", {sizes(least.best.config.parallel)}" if least.best else ""
    inside = [(each.run["cost"], each.gpus) for each in found if each.run and each.run["cost"] and limits.met(each.run)]
    if inside and (cheapest := min(inside))[1] != least.gpus:
        said += f"; {cheapest[1]} cost least, {cheapest[0]:,.0f} USD"
    if budget is not None:
        affordable = [(each.run["run_time"], each.gpus) for each in found if each.run and limits.met(each.run)]
        if (fastest := min(affordable))[1] != least.gpus:
            said += f"; {fastest[1]} are the fastest, {fastest[0]:.1f} days"
    return said


def document(name: str, job: TrainingJob, cluster: Cluster, found: Sequence[OnGpus], limits: Limits) -> dict[str, Any]:
    """The same as `--json` prints it."""
    least = smallest(found, limits) if limits != Limits() else None
    return {
        "origin": "simulated",
        "cluster": cluster.name,
        "model": name,
        "batch": job.B,
        "deadline_days": limits.days,
        "budget": limits.budget,
        "smallest": least.gpus if least else None,
        "counts": [
            {
                "gpus": each.gpus,
                "reason": each.why or None,
                "configuration": each.best.config.to_plain() if each.best else None,
                "iteration_time": each.best.iteration_time if each.best else None,
                "model_flops_utilization": each.best.model_flops_utilization if each.best else None,
                "peak_memory": each.best.peak_memory if each.best else None,
                "run": each.run,
            }
            for each in found
        ],
    }
