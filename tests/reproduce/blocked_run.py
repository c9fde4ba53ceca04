"""The command line with a measured artifact whose first point is there at once, and whose others never end:

python -m tests.reproduce.blocked_run FOLDER table_weak_scaling --fidelity measured ...

A rank that waits has written FOLDER/waits-RANK.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from ptdp_core.interrupts import run_program

RANKS = 2


def block(beat: Callable[[], None], folder: Path) -> None:
    (folder / f"waits-{os.environ['RANK']}").touch()
    time.sleep(3600)


def blocked() -> int:
    from reproduce import cli
    from reproduce.experiment import catalog
    from reproduce.experiment.artifact import Take
    from reproduce.experiment.sweep import Point
    from results.records import Metric
    from tests.reproduce.blocked_run import block as block_in_rank  # there is no __main__ in torchrun's ranks

    folder, artifact = Path(sys.argv[1]), catalog.load(sys.argv[2])

    def measure(launcher: Callable[..., object]) -> Take:
        def take(point: Point) -> Mapping[str, Metric]:
            if point.key != artifact.points("cpu")[0].key:
                launcher(block_in_rank, RANKS, (folder,), "cpu")
            return {"iteration_time": Metric(1.0, "s", "measured", (1.0,))}

        return take

    catalog.load = lambda *names: replace(artifact, measure=measure)
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    run_program("reproduce", blocked)
