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
    listed = statements()
    judged = sum(statement.judged for statement in listed)
    return {"statements": len(listed), "judged": judged, "reasons": len(listed) - judged}


def artifacts() -> tuple[Artifact, ...]:
    """The artifacts of the catalogue."""
    return tuple(catalog.load(id) for id in catalog.ids())


def problems(listed: Sequence[Statement], known: Sequence[Artifact]) -> list[str]:
    """What is wrong with a list, as lines: nothing that stands for a statement, or a name that does not exist."""
    claims = {artifact.id: {claim.id for claim in artifact.claims} for artifact in known}
    wrong = []
    for statement in listed:
        if statement.kind not in KINDS:
            wrong.append(f"{statement.id}: kind {statement.kind!r} is none of {', '.join(KINDS)}")
        elif statement.kind != "statement" and statement.artifact is None:
            wrong.append(f"{statement.id} ({statement.place}): a {statement.kind} that no artifact shows")
        if statement.judged == bool(statement.reason):
            needs = "either an artifact or claims, or a reason why there are none"
            wrong.append(f"{statement.id} ({statement.place}): needs {needs}, and not both")
        if not statement.text and not statement.claims:
            wrong.append(f"{statement.id} ({statement.place}): needs the paper's words, since no claim has them")
        if statement.artifact is not None and statement.artifact not in claims:
            wrong.append(f"{statement.id} ({statement.place}): no artifact {statement.artifact!r}")
        for name in statement.claims:
            artifact, _, claim = name.partition(".")
            if claim not in claims.get(artifact, ()):
                wrong.append(f"{statement.id} ({statement.place}): no claim {name!r}")
    doubles = {statement.id for statement in listed if sum(other.id == statement.id for other in listed) > 1}
    return wrong + [f"{id}: twice in the list" for id in sorted(doubles)]


def unlisted(listed: Sequence[Statement], known: Sequence[Artifact]) -> list[str]:
    """Artifacts and claims of the paper that stand for nothing on the list, as 'artifact' or 'artifact.claim'."""
    claims = {name for statement in listed for name in statement.claims}
    shown = {statement.artifact for statement in listed} | {name.partition(".")[0] for name in claims}
    paper = [artifact for artifact in known if artifact.section != NOT_IN_PAPER]
    return [artifact.id for artifact in paper if artifact.id not in shown] + [
        name
        for artifact in known
        for claim in artifact.claims
        if claim.place != OURS and (name := f"{artifact.id}.{claim.id}") not in claims
    ]
