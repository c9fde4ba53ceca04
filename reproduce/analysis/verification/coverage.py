"""Which artifact or claim stands for each figure, table and quantitative sentence of the paper: `coverage.json`.

Every statement there has its place and one of: the artifact that shows it, the claims that judge it ('artifact.claim'),
or the reason why none does; and the paper's words, where they are not those of a claim. `problems` says what is wrong
with the list.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from reproduce.experiment import catalog
from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact
from reproduce.experiment.results import OURS

FILE = Path(__file__).with_name("coverage.json")
KINDS = ("figure", "table", "statement")


@dataclass(frozen=True)
class Statement:
    """A figure, a table or a sentence of the paper.

    `text` is an excerpt of it or of the caption, verbatim; empty where the sentence is that of its claims.
    """

    id: str
    kind: str
    place: str
    text: str = ""
    artifact: str | None = None
    claims: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def judged(self) -> bool:
        """Whether an artifact shows it or a claim judges it."""
        return self.artifact is not None or bool(self.claims)


@cache
def statements() -> tuple[Statement, ...]:
    """All of the list, in its order."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))["statements"]
    return tuple(Statement(**{**entry, "claims": tuple(entry.get("claims", ()))}) for entry in entries)


def counts() -> dict[str, int]:
    """How many statements there are, how many are judged or shown, how many have a reason instead."""
    found = statements()
    judged = sum(one.judged for one in found)
    return {"statements": len(found), "judged": judged, "reasons": len(found) - judged}


def artifacts() -> tuple[Artifact, ...]:
    """The artifacts of the catalogue."""
    return tuple(catalog.load(id) for id in catalog.ids())


def problems(found: Sequence[Statement], known: Sequence[Artifact]) -> list[str]:
    """What is wrong with a list, as lines: nothing that stands for a statement, or a name that does not exist."""
    claims = {artifact.id: {claim.id for claim in artifact.claims} for artifact in known}
    wrong = []
    for one in found:
        if one.kind not in KINDS:
            wrong.append(f"{one.id}: kind {one.kind!r} is none of {', '.join(KINDS)}")
        elif one.kind != "statement" and one.artifact is None:
            wrong.append(f"{one.id} ({one.place}): a {one.kind} that no artifact shows")
        if one.judged == bool(one.reason):
            needs = "either an artifact or claims, or a reason why there are none"
            wrong.append(f"{one.id} ({one.place}): needs {needs}, and not both")
        if not one.text and not one.claims:
            wrong.append(f"{one.id} ({one.place}): needs the paper's words, since no claim has them")
        if one.artifact is not None and one.artifact not in claims:
            wrong.append(f"{one.id} ({one.place}): no artifact {one.artifact!r}")
        for name in one.claims:
            artifact, _, claim = name.partition(".")
            if claim not in claims.get(artifact, ()):
                wrong.append(f"{one.id} ({one.place}): no claim {name!r}")
    doubles = {one.id for one in found if sum(other.id == one.id for other in found) > 1}
    return wrong + [f"{id}: twice in the list" for id in sorted(doubles)]


def unlisted(found: Sequence[Statement], known: Sequence[Artifact]) -> list[str]:
    """Artifacts and claims of the paper that stand for nothing on the list, as 'artifact' or 'artifact.claim'."""
    claims = {name for one in found for name in one.claims}
    shown = {one.artifact for one in found} | {name.partition(".")[0] for name in claims}
    paper = [artifact for artifact in known if artifact.section != NOT_IN_PAPER]
    return [artifact.id for artifact in paper if artifact.id not in shown] + [
        name
        for artifact in known
        for claim in artifact.claims
        if claim.place != OURS and (name := f"{artifact.id}.{claim.id}") not in claims
    ]
