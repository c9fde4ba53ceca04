"""What limits an iteration: the share of its time that each resource sets, and what one change after another gives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptdp_core.simulator import Estimate, simulate
from reproduce.annex.page import answers, words
from reproduce.planning.elasticities import FASTER, elasticities
from reproduce.planning.time_shares import time_shares

COMPUTES = ("computation", "recomputation")
PRODUCTS, TRAFFIC = "matrix products", "memory traffic"
RESOURCES = {  # of `time_shares`: the resource in words, and the class of its colour
    PRODUCTS: (PRODUCTS, "fwd"),
    TRAFFIC: (TRAFFIC, "fwd2"),
    "bubble": ("waiting for other stages", "wait"),
    "tensor-parallel communication": ("layers’ sums over {}", "msg"),
    "context-parallel communication": ("exchange of keys and values", "msg"),
    "expert-parallel communication": ("exchange with experts", "msg"),
    "pipeline communication": ("messages between stages", "msg"),
    "data-parallel communication": ("exchange of gradients", "msg"),
    "optimizer": ("optimizer", "opt"),
    "host": ("host", "opt"),
}
LEAST = 0.005  # of the time: what has less is not told


def limits(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """The resources by the share of an iteration's time that they set, the largest first, and the first two in words.

    Computing is divided by a second simulation: its part in proportion to the memory's bandwidth is memory traffic, the
    rest matrix products. The other parts are `time_shares`.
    """
    estimate, machine = _simulated(configuration, cluster)
    faster = replace(machine, memory_bandwidth=FASTER * machine.memory_bandwidth)
    spent = time_shares(estimate, machine)
    spent_faster = time_shares(simulate(estimate.config, faster), faster)
    computing, computing_faster = (sum(each[use] for use in COMPUTES) for each in (spent, spent_faster))
    traffic = (computing - computing_faster) / (1 - 1 / FASTER)
    spent |= {PRODUCTS: computing - traffic, TRAFFIC: traffic}
    where = "NVLink" if estimate.config.parallel.t <= machine.gpus_per_node else "the network"
    shares = {use: spent[use] / estimate.iteration_time for use in RESOURCES}
    parts = [
        {"label": RESOURCES[use][0].format(where), "look": RESOURCES[use][1], "share": shares[use]}
        for use in sorted(RESOURCES, key=lambda use: -shares[use])
        if shares[use] >= LEAST
    ]
    return {"said": ", then ".join(f"{part['label']} {part['share']:.0%}" for part in parts[:2]), "parts": parts}


def changes(configuration: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """What each change would give: of the machine, of the batch, of the schedule (`elasticities`)."""
    found = elasticities(*_simulated(configuration, cluster))
    return {"changes": [each | {"change": words.said(each["change"])} for each in found]}


def _simulated(configuration: Mapping[str, Any], cluster: str) -> tuple[Estimate, Any]:
    machine = answers.opened(cluster, answers.said(configuration).get("program"))
    return simulate(answers.config_of(configuration), machine), machine
