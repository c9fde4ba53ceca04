"""Claims that are data, in a paper's `claims.toml`: a metric of some points, compared with bounds.

Compared are the values themselves, or each one over that of another point, or over what the paper prints. An entry
with a `reason` instead is a sentence that nothing here can judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import OURS, Claim, Judgement, consistent_if, holds_if
from reproduce.experiment.papers import Paper, PaperError, read_toml
from reproduce.experiment.results import MissingResultError, Results
from results.records import PointResult
from results.records.errors import did_you_mean

CLAIMS = "claims.toml"
PUBLISHED = "published"  # stands for the paper's own value of the same point
REDUCED = {
    "every": lambda values: values,
    "largest": lambda values: [max(values)],
    "smallest": lambda values: [min(values)],
    "mean": lambda values: [fsum(values) / len(values)],
    "mean distance from 1 of": lambda values: [fsum(abs(value - 1) for value in values) / len(values)],
}
NEEDED = ("id", "table", "sentence", "place")
BOUNDS = ("at_least", "at_most")
KNOWN = (*NEEDED, "metric", "of", "over", "match", "which", *BOUNDS, "judged_on", "reason")


@dataclass(frozen=True)
class Bounded:
    """Judges whether a metric, or its ratio to that of other points, lies within bounds.

    - `of`: parameters that the points have, or 'series', 'label' or 'key'; all points without it
    - `over`: likewise of the points that each is divided by, which have the same label; `PUBLISHED`: by the paper's
    - `which`: of `REDUCED`: which of the values, or their mean, has to lie within the bounds
    - `of_paper`: judge the paper's own values, or, over these, what follows from its other columns
    """

    metric: str
    of: Mapping[str, Any]
    over: Mapping[str, Any] | str | None
    match: str
    which: str
    at_least: float | None
    at_most: float | None
    of_paper: bool

    def __call__(self, results: Results) -> Judgement:
        """The verdict on these results. Raises `MissingResultError` for a point without a value.

        A prediction that misses the paper's value on a cluster whose predictions were not scored is inconclusive.
        """
        values = self.values(results.papers() if self.of_paper and self.over != PUBLISHED else results)
        low, high = self.bounds
        judged = REDUCED[self.which](list(values.values()))
        holds = all(low <= value <= high for value in judged)
        extreme = [name for name, value in values.items() if value in (min(values.values()), max(values.values()))]
        what = ", ".join(f"{name}: {values[name]:.4g}" for name in (extreme[0], extreme[-1])[: len(values)])
        text = f"{self.words}: {judged[0]:.4g}; " if len(judged) == 1 and len(values) > 1 else ""
        judge = consistent_if if self.of_paper else holds_if
        text = f"{text}{what}" + (f" ({len(values)} in all)" if len(values) > 2 else "")
        numbers = results.numbers(least=min(values.values()), most=max(values.values()))
        if not holds and self.predicts(results.fidelity) and not results.alternatives:
            text = f"missed, where the simulator's errors are not known: {text}"
            return Judgement("inconclusive", text, numbers)
        return judge(holds, text, numbers)

    def predicts(self, fidelity: str) -> bool:
        """Whether results of a fidelity predict what the paper printed: to miss it contradicts nobody but them."""
        return fidelity == "simulated" and self.over == PUBLISHED and not self.of_paper

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the most that a value may be."""
        low, high = self.at_least, self.at_most
        return float("-inf") if low is None else low, float("inf") if high is None else high

    @property
    def words(self) -> str:
        """Which number it is about."""
        over = " over the paper's" if self.over == PUBLISHED else ""
        if isinstance(self.over, Mapping):
            over = f" over that of {_said(self.over)}"
        return f"{self.which} {self.metric}{f' of {_said(self.of)}' if self.of else ''}{over}"

    @property
    def tolerance(self) -> str:
        """What it allows, in words."""
        limits = (("at least", self.at_least), ("at most", self.at_most))
        return f"{self.words}: " + ", ".join(f"{words} {limit:g}" for words, limit in limits if limit is not None)

    def values(self, results: Results) -> dict[str, float]:
        """What is judged, by point. Raises `MissingResultError`."""
        chosen = [point for point in results.points if _is(point, self.of)]
        if self.over == PUBLISHED:
            chosen = [point for point in chosen if self.metric in point.paper]
        values = {}
        for point in chosen:
            value = results.value(point.key, self.metric)
            if self.over == PUBLISHED:
                value /= float(point.paper[self.metric].value)
            elif isinstance(self.over, Mapping):
                same = getattr(point, self.match)
                others = (other for other in results.points if getattr(other, self.match) == same)
                partner = [other for other in others if _is(other, self.over)]
                if len(partner) != 1:
                    raise MissingResultError(f"{len(partner)} points are {_said(self.over)} at {same}")
                value /= results.value(partner[0].key, self.metric)
            values[f"{point.series} {point.label}".strip()] = value
        if not values:
            raise MissingResultError(f"no point is {_said(self.of)}")
        return values


def _is(point: PointResult, asked: Mapping[str, Any]) -> bool:
    """Whether a point has these parameters, or is of that series, label or key."""
    own = {"series": point.series, "label": point.label, "key": point.key}
    return all({**point.parameters, **own}.get(name) == value for name, value in asked.items())


def _said(asked: Mapping[str, Any]) -> str:
    return ", ".join(str(value) if isinstance(value, str) else f"{name}={value}" for name, value in asked.items())


@cache
def entries(paper: Paper) -> tuple[dict[str, Any], ...]:
    """The claims of a paper's file, checked, each with the `line` in which it begins. Raises `PaperError`."""
    path = paper.folder / CLAIMS
    if not path.is_file():
        return ()
    listed = read_toml(path).get("claims", [])
    rows = path.read_text(encoding="utf-8").splitlines()
    lines = [number for number, row in enumerate(rows, 1) if row.strip() == "[[claims]]"]
    seen: dict[str, int] = {}
    for line, entry in zip(lines, listed, strict=True):
        _check_claim(path, line, entry)
        if entry["id"] in seen:
            text = f"claim {entry['id']!r} stands in line {seen[entry['id']]} already; needs an id of its own"
            raise PaperError(path, line, text)
        if entry["table"] not in paper.names:
            near = did_you_mean(entry["table"], paper.names)
            raise PaperError(path, line, f"no table {entry['table']!r}; needs one of {', '.join(paper.names)}{near}")
        seen[entry["id"]] = line
    return tuple({**entry, "line": line} for line, entry in zip(lines, listed, strict=True))


def _check_claim(path: Path, line: int, entry: Mapping[str, Any]) -> None:
    """Raise `PaperError` for keys that are missing, unknown or impossible together."""
    for key in entry:
        if key not in KNOWN:
            raise PaperError(path, line, f"unknown key {key!r}{did_you_mean(key, KNOWN)}; needs {', '.join(KNOWN)}")
    needed = NEEDED if "reason" in entry else (*NEEDED, "metric")
    if missing := [key for key in needed if not entry.get(key)]:
        raise PaperError(path, line, f"the claim lacks {', '.join(missing)}; needs {', '.join(needed)}")
    if entry.get("which", "every") not in REDUCED:
        raise PaperError(path, line, f"which = {entry['which']!r}; needs one of {', '.join(REDUCED)}")
    if entry.get("match", "label") not in ("label", "series"):
        raise PaperError(path, line, f"match = {entry['match']!r}; needs label or series")
    if entry.get("judged_on", "results") not in ("results", PUBLISHED):
        raise PaperError(path, line, f"judged_on = {entry['judged_on']!r}; needs results or {PUBLISHED}")
    bounds = [entry[key] for key in BOUNDS if key in entry]
    if "reason" not in entry and not (bounds and all(isinstance(bound, int | float) for bound in bounds)):
        raise PaperError(path, line, f"the claim has no bound; needs a number as {' or '.join(BOUNDS)}")


def claims_of(paper: Paper, name: str, artifact: Artifact) -> list[Claim]:
    """The claims of the paper's file on an artifact, by its name in the paper. Raises `PaperError`."""
    claims = []
    for entry in entries(paper):
        if entry["table"] != name or "reason" in entry:
            continue
        of_paper = entry.get("judged_on") == PUBLISHED
        judge = Bounded(
            metric=entry["metric"],
            of=entry.get("of", {}),
            over=entry.get("over"),
            match=entry.get("match", "label"),
            which=entry.get("which", "every"),
            at_least=entry.get("at_least"),
            at_most=entry.get("at_most"),
            of_paper=of_paper,
        )
        place = OURS if paper.ours else entry["place"]
        fidelity = "derived" if of_paper else artifact.fidelities[0]
        sentence = " ".join(entry["sentence"].split())
        claims.append(Claim(entry["id"], sentence, place, fidelity, judge.tolerance, judge))
    return claims
