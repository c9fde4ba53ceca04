"""Which artifact or claim stands for each figure, table and quantitative sentence of a paper.

`coverage.json` lists the statements of a paper whose claims are functions: each has its `place` and one of: the
`artifact` that shows it, the `claims` that judge it ('artifact.claim'), or the `reason` why none does; and the paper's
words (`text`), where they are not those of a claim. The entries of a paper's `claims.toml` are statements, too.
"""

import json
import os
from typing import Any

from reproduce.experiment import papers, told
from reproduce.experiment.claims import OURS
from reproduce.experiment.papers import Paper
from results import opening

FILE = "coverage.json"


def statements(paper: Paper) -> tuple[dict[str, Any], ...]:
    """All of a paper's list, in its order, then those of its claims that are data."""
    path = paper.folder / FILE
    listed = json.loads(opening.read_text(path, within=paper.folder))["statements"] if os.path.exists(path) else []
    declared_here = [] if paper.ours else [entry for entry in told.entries(paper) if entry["place"] != OURS]
    return (*listed, *map(_statement, declared_here))


def _statement(entry: dict[str, Any]) -> dict[str, Any]:
    stands = {key: entry[key] for key in ("reason",) if key in entry} or {"claims": [f"{entry['table']}.{entry['id']}"]}
    return {"id": entry["id"], "kind": "statement", "place": entry["place"], "text": entry["sentence"], **stands}


def counts(paper: str | None = None) -> dict[str, int]:
    """How many statements a paper has, or all do; how many are judged or shown, how many have a reason instead."""
    chosen = papers.papers() if paper is None else (papers.paper(paper),)
    listed = [statement for known in chosen for statement in statements(known)]
    reasons = sum("reason" in statement for statement in listed)
    return {"statements": len(listed), "judged": len(listed) - reasons, "reasons": reasons}
