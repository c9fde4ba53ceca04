"""Which artifact or claim stands for each figure, table and quantitative sentence of the paper: `coverage.json`.

Every statement there has its `place` and one of: the `artifact` that shows it, the `claims` that judge it
('artifact.claim'), or the `reason` why none does; and the paper's words (`text`), where they are not those of a claim.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("coverage.json")


@cache
def statements() -> tuple[dict[str, Any], ...]:
    """All of the list, in its order."""
    return tuple(json.loads(FILE.read_text(encoding="utf-8"))["statements"])


def counts() -> dict[str, int]:
    """How many statements there are, how many are judged or shown, how many have a reason instead."""
    reasons = sum("reason" in statement for statement in statements())
    return {"statements": len(statements()), "judged": len(statements()) - reasons, "reasons": reasons}
