"""`emulate`: one configuration, run by the real engine in real time on this machine."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.interrupts import allowed, held
from ptdp_core.launch.local import RankError, launch
from ptdp_core.schedules import build
from ptdp_core.simulator import Cluster, simulate
from reproduce.annex.emulation.network import LinkError, Network
from reproduce.annex.emulation.plan import SHRINK, EmulationPlan, make_plan
from reproduce.annex.emulation.prediction import describe
from reproduce.annex.emulation.rank_report import RankReport
from reproduce.annex.emulation.result import Emulation, assemble

ITERATIONS, WARMUP = 3, 1
# A rank without progress for so many predicted iterations, and so many seconds, counts as hung.
PATIENCE_ITERATIONS, PATIENCE_SECONDS = 5, 30


def emulate(config: TrainingConfig, cluster: Cluster, *, gpus_per_node: int, iterations: int = ITERATIONS) -> Emulation:
    """Run `config` on emulated nodes of `gpus_per_node` GPUs of `cluster`. The package says what is emulated, and how.

    Raises `ConfigurationError` for one that cannot be emulated, `NetworkUnavailableError` where this machine
    cannot, `LinkError` if a link drops, `RankError` (of `ptdp_core.launch.local`) if a rank fails. Whatever happens,
    nothing is left behind.
    """
    _check(config, cluster, gpus_per_node, iterations)
    machine = cluster.in_nodes_of(gpus_per_node)
    plan = make_plan(config, machine, iterations, WARMUP)
    expected = simulate(config, machine).iteration_time
    with (
        held(),
        TemporaryDirectory(prefix="ptdp-") as folder,
        Network(config.parallel.n, gpus_per_node, machine.hca_bandwidth / SHRINK) as network,
        allowed(),
    ):
        try:
            reports: list[RankReport] = launch(
                _rank,
                config.parallel.n,
                (plan, folder),
                timeout=PATIENCE_ITERATIONS * expected + PATIENCE_SECONDS,
                enter=network.namespaces.enter,
                preload=("reproduce.annex.emulation.worker",),
            )
        except RankError as error:
            if down := network.down():
                raise LinkError(f"{', '.join(down)} went down during the run") from error
            raise
    links = describe(plan, machine, [report.measured for report in reports])
    prediction = simulate(config, links.cluster, timeline=True)
    parallel = config.parallel
    schedule = build(parallel.schedule, parallel.p, parallel.m, parallel.v)
    return assemble(config, schedule, reports, links, prediction)


def _rank(beat: Callable[[], None], plan: EmulationPlan, folder: str) -> Any:
    from reproduce.annex.emulation.worker import run  # here: it loads torch, which this process does without

    return run(beat, plan, folder)


def _check(config: TrainingConfig, cluster: Cluster, gpus_per_node: int, iterations: int) -> None:
    for name, value in (("gpus_per_node", gpus_per_node), ("iterations", iterations)):
        if value < 1:
            raise ConfigurationError(f"{name}={value} is not positive; needs {name} >= 1; try {name}=1")
    if config.parallel.sharded_optimizer:
        raise ConfigurationError("sharded_optimizer=True is not emulated; needs false; try sharded_optimizer=false")
    if config.parallel.c > 1:
        raise ConfigurationError(f"c={config.parallel.c} is not emulated; needs c=1; try c=1")
    if config.parallel.vocabulary:
        schedule = config.parallel.schedule
        raise ConfigurationError(
            f"schedule={schedule!r}, by which all ranks share the vocabulary, is not emulated; needs one without; "
            f"try schedule={schedule.partition('+')[0]!r}"
        )
    if config.parallel.expert_imbalance != 1:
        raise ConfigurationError(
            f"expert_imbalance={config.parallel.expert_imbalance} is not emulated; needs as many tokens on every rank; "
            "try expert_imbalance=1"
        )
    for switch in ("deduplicated_dispatch", "overlapped_exchange"):
        if config.parallel.e > 1 and getattr(cluster.software, switch):
            raise ConfigurationError(
                f"software={switch!r} with e={config.parallel.e} is not emulated; needs all-to-alls as they are; "
                "try a cluster file without it"
            )
    if config.parallel.t > gpus_per_node and (config.parallel.e > 1 or config.parallel.whole_experts):
        raise ConfigurationError(
            f"t={config.parallel.t} on nodes of gpus_per_node={gpus_per_node} with e={config.parallel.e}, "
            f"etp={config.parallel.expert_tensor_ranks} is not emulated; needs tensor groups inside a node; "
            f"try t={gpus_per_node}"
        )
    if config.parallel.data_parallel == "zero3":
        raise ConfigurationError(
            "data_parallel='zero3' is not emulated; needs 'local' or 'torch'; try data_parallel='local'"
        )
