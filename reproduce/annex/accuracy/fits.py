"""Does simulated memory tell what ran from what did not? By the paper's own configurations.

What the paper publishes a value for was run, so it fits. Two things did not: 530 billion parameters with ZeRO-3 on 560
GPUs (Table 2), and the batch sizes that Figure 17 leaves out without recomputation. Section 3.5 gives no bytes; its
formula is judged by the claims of `table_recompute_memory`.
"""

from collections.abc import Sequence
from typing import Any

from reproduce.experiment.results import where
from reproduce.papers.sc21 import fig_recomputation
from results.records import PointResult

RAN, DID_NOT = "ran in the paper", "did not fit in the paper"


def expected(artifact: str, result: PointResult) -> str | None:
    """What the paper says of a point: RAN, DID_NOT, or None if nothing."""
    if result.paper:
        return RAN
    left_out = artifact == fig_recomputation.ARTIFACT.id and result.series == fig_recomputation.WITHOUT
    return DID_NOT if left_out or result.parameters.get("expected") == "oom" else None


def score(results: Sequence[tuple[str, PointResult]], usable_memory: float) -> list[dict[str, Any]]:
    """By what the paper says of points, each with its artifact: how many are simulated so, the nearest to the limit."""
    rows = []
    for said, status in ((RAN, "ok"), (DID_NOT, "oom")):
        shares = [
            (
                float(point.metrics["peak_memory"].value or 0) / usable_memory,
                point.status,
                f"{artifact}: {where(point)}",
            )
            for artifact, point in results
            if expected(artifact, point) == said and point.status in ("ok", "oom")
        ]
        if shares:
            share, _, nearest = min(shares, key=lambda known: abs(known[0] - 1))
            right = sum(simulated == status for _, simulated, _ in shares)
            row = {"said": said, "n": len(shares), "right": right, "nearest": nearest, "nearest_share": share}
            rows.append(row)
    return rows
