"""The papers' numbers, from each one's `published.json`, each with how it was read; and what was set with them.

An entry belongs to an artifact: 'fig_interleaved' of the first paper, or 'zerobubble/table_4'.
It has `rows`, each with parameters (by the names of a training configuration, or an artifact's own) and the
values printed there, by metric; `values` says of each metric its unit and the factor and rounding step of what is
printed. A row may have a step of its own, `quantum` or, for one metric, `METRIC_quantum`. `configuration` is what all
rows share, beside what `paper.toml` says of all runs of the paper.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from reproduce.experiment import papers
from reproduce.experiment.papers import FIRST, FOLDER
from results import opening
from results.records import PaperValue

FILE = "published.json"


@cache
def document(paper: str) -> Any:
    """The published values of a paper, by its name."""
    folder = FOLDER / paper if paper == FIRST else papers.paper(paper).folder
    return json.loads(opening.read_text(folder / FILE, within=folder))


def artifact(id: str) -> MappingProxyType[str, Any]:
    """An artifact's entry: 'configuration', 'values', 'rows', ... Raises KeyError if the paper gives none."""
    paper, _, name = id.rpartition("/")
    return MappingProxyType(document(paper or FIRST)["artifacts"][name])


def constants() -> MappingProxyType[str, Any]:
    """What the first paper says of its cluster: peak FLOP/s, GPUs per node."""
    return MappingProxyType(document(FIRST)["constants"])


def gpus_per_node() -> int:
    """GPUs of a server of the paper's cluster, g in its Takeaway #1."""
    return int(constants()["gpus_per_node"])


def rows(id: str) -> list[dict[str, Any]]:
    """The rows as printed: parameters and values."""
    return list(artifact(id)["rows"])


def configuration(id: str) -> dict[str, Any]:
    """What all rows share, with the paper's sequence length and vocabulary where there is a model."""
    shared = dict(artifact(id).get("configuration", {}))
    return {**shared, **text_sizes(id)} if "layers" in shared or "hidden" in shared else shared


def model(id: str) -> dict[str, Any]:
    """Layers, hidden size, heads, sequence length and vocabulary of an entry that has one model."""
    shared = configuration(id)
    return {name: shared[name] for name in ("layers", "hidden", "heads", "seq", "vocab")}


def text_sizes(id: str) -> dict[str, Any]:
    """Sequence length and vocabulary of every model of the artifact's paper."""
    paper = id.rpartition("/")[0] or FIRST
    known = papers.paper(paper)
    shared = known.configuration
    if missing := [name for name in ("seq", "vocab") if name not in shared]:
        text = f"lacks {' and '.join(missing)}; {id} needs them in [configuration]; try seq = 2048, vocab = 51200"
        raise papers.PaperError(known.folder / papers.FILE, 1, text)
    return {"seq": shared["seq"], "vocab": shared["vocab"]}


def values(id: str, parameters: Mapping[str, Any]) -> dict[str, PaperValue]:
    """The paper's values at the point of these parameters, by metric: none if no row agrees with all of them."""
    shared = artifact(id).get("configuration", {})
    for row in rows(id):
        names = {**shared, **parameters_of(id, row)}
        if all(parameters[name] == value for name, value in names.items() if name in parameters):
            return paper_values(id, row)
    return {}


def parameters_of(id: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without its values."""
    values = artifact(id)["values"]
    return {name: value for name, value in row.items() if name not in values and not name.endswith("quantum")}


def paper_values(id: str, row: Mapping[str, Any]) -> dict[str, PaperValue]:
    """The values of a row, by metric, in base units."""
    entry = artifact(id)
    by_metric = {}
    for metric, how in entry["values"].items():
        if metric not in row:
            continue
        factor = how.get("factor", 1)
        quantum = row.get(f"{metric}_quantum", row.get("quantum", how.get("quantum")))
        step = None if quantum is None else quantum * factor
        by_metric[metric] = PaperValue(row[metric] * factor, how["unit"], entry["how"], quantum=step)
    return by_metric


def artifacts_in(text: str) -> set[str]:
    """The artifacts that a `set_with` names. One marked '(text only ...)' gave words, not values."""
    return set(re.findall(r"\b(?:fig|table)_\w+", re.sub(r"\w+ \(text only[^)]*\)", "", text)))


@cache
def numbers_set_with(cluster: str, artifact: str) -> tuple[str, ...]:
    """The numbers of a cluster that were chosen, within a range, with the published values of an artifact."""
    from ptdp_core.simulator import read_parameters

    numbers = read_parameters(cluster).items()
    return tuple(name for name, n in numbers if n.low < n.high and artifact in artifacts_in(n.set_with))
