"""The fidelities: one table that everything reads which speaks of them. Adding one is a row here and its module.

The module is `reproduce/running/NAME.py`. It has `make(plan, debug) -> PointEvaluator` and `digest(artifact) -> str`, a
digest of the sources that its numbers come from. Where evaluating takes time worth telling it has
`expected_seconds(point, cluster)`, where the scale depends on the machine `default_scale(scales, launcher)`. The
record's schema lists the names, too (`results.records.FIDELITIES`): without its name there a new fidelity's results
cannot be written.
"""

from collections.abc import Mapping
from dataclasses import dataclass

PAPERS_CLUSTER = "selene"  # where the published values were measured; the default cluster
ELSEWHERE = "clusters"  # the folder, in one of results, of those of other clusters than the papers'


@dataclass(frozen=True)
class Fidelity:
    """How an artifact's numbers come about.

    - `scales`: the sizes that experiments have, the default first, with the number of GPUs that each needs here
    - `on_cluster`: a cluster file decides the numbers
    - `timed`: the numbers are this machine's clock's; others can be computed again anywhere
    - `purpose`: what it is good for; `origin`: where its numbers come from; both for people
    """

    name: str
    scales: Mapping[str, int]
    on_cluster: bool
    timed: bool
    purpose: str
    origin: str

    def wording(self, cluster: str) -> str:
        """'simulated on selene', 'derived': how a heading says where numbers come from."""
        return f"{self.name} on {cluster}" if cluster and self.on_cluster else self.name


# The least one comes first: a claim that it can test is tested by all that follow.
FIDELITIES = {
    fidelity.name: fidelity
    for fidelity in (
        Fidelity(
            "derived",
            {"paper": 0},
            on_cluster=False,
            timed=False,
            purpose="what follows from the paper's formulas and numbers",
            origin="from formulas, from the schedules in exact arithmetic, or from other numbers on this page",
        ),
        Fidelity(
            "simulated",
            {"paper": 0, "laptop": 0},
            on_cluster=True,
            timed=False,
            purpose="the paper's figures at the paper's size, from a cost model of its cluster",
            origin="the schedule executed event by event against a cost model of the named cluster",
        ),
        Fidelity(
            "emulated",
            {"laptop": 0},
            on_cluster=True,
            timed=True,
            purpose="the real engine in real time, on virtual accelerators and emulated nodes",
            origin="real processes and sockets, with virtual accelerators and shaped links",
        ),
        Fidelity(
            "measured",
            {"cpu": 0, "gpu": 1, "gpus": 4},
            on_cluster=False,
            timed=True,
            purpose="the real engine, training real models on this machine's devices",
            origin="run on the devices that the provenance names",
        ),
    )
}


def tests(fidelity: str, needed: str) -> bool:
    """Whether results of a fidelity can test a claim that needs another one at least."""
    order = list(FIDELITIES)
    return order.index(fidelity) >= order.index(needed)


def folder_name(fidelity: str, scale: str) -> str:
    """The folder, below the artifact's, of the results at a fidelity and a scale."""
    return fidelity if scale == next(iter(FIDELITIES[fidelity].scales)) else f"{fidelity}-{scale}"
