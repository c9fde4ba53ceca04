"""What the tests emulate: small models, whose passes take milliseconds; and a run that lasts, as a program:

python -m tests.reproduce.annex.emulation.jobs [PATIENCE]     four nodes, minutes; a rank hangs after PATIENCE seconds
"""

import sys
from dataclasses import replace

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.interrupts import run_program
from ptdp_core.launch.local import RankError
from ptdp_core.simulator import load_cluster
from reproduce.annex.emulation import LinkError, emulate, run

SMALL = ModelConfig(layers=8, hidden=1024, heads=16, vocab=1024)
LARGE = ModelConfig(layers=8, hidden=12288, heads=96)
EXPERTS = replace(SMALL, experts=4, experts_per_token=2, expert_ffn_hidden=1024)
RANKS = 4


def config(model: ModelConfig = SMALL, **parallel: object) -> TrainingConfig:
    return TrainingConfig(model, ParallelConfig(**parallel))


def lasting() -> int:
    if sys.argv[1:]:
        run.PATIENCE_ITERATIONS, run.PATIENCE_SECONDS = 0, int(sys.argv[1])
    try:
        emulate(config(LARGE, p=RANKS, b=1, B=512), load_cluster(), gpus_per_node=1)
    except (LinkError, RankError) as error:
        print(error, file=sys.stderr)
    return 1


if __name__ == "__main__":
    run_program("lasting", lasting)
