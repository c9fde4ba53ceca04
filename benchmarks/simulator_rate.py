"""How many configurations a second the simulator answers on one core, over the paper's points.

    python -m benchmarks.simulator_rate [--passes N]

`paper_points.json` holds every simulated configuration of the paper's tables and figures, as `reproduce simulate` reads
them. *Cold* is the first pass, in which every schedule is built, lowered and compiled; *warm* the best of the later
passes, as in a search over configurations, where schedules recur.
"""

import argparse
import json
import time
from pathlib import Path

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster, load_cluster, simulate

PAPER_POINTS = Path(__file__).parent / "paper_points.json"


def paper_points() -> list[TrainingConfig]:
    """Every simulated configuration of the paper's tables and figures."""
    return [TrainingConfig.from_plain(point) for point in json.loads(PAPER_POINTS.read_text())]


def one_pass(points: list[TrainingConfig], cluster: Cluster) -> float:
    """Seconds to simulate all points once."""
    start = time.perf_counter()
    for point in points:
        simulate(point, cluster)
    return time.perf_counter() - start


def main() -> None:
    """Print the cold and the warm rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=5, help="warm passes; the best counts (default 5)")
    passes = parser.parse_args().passes
    points, cluster = paper_points(), load_cluster()
    cold = one_pass(points, cluster)
    warm = min(one_pass(points, cluster) for _ in range(passes))
    print(f"{len(points)} configurations of the paper, one core")
    print(f"cold: {len(points) / cold:6.0f} configurations/s ({cold:.2f} s a pass)")
    print(f"warm: {len(points) / warm:6.0f} configurations/s ({warm:.2f} s a pass)")


if __name__ == "__main__":
    main()
