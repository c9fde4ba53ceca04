"""Section 5.10: size of a checkpoint, and how long it loads and saves at the published bandwidths."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import parameters
from ptdp_core.simulator.memory import OPTIMIZER_BYTES, WEIGHT_BYTES
from reproduce.annex import part
from reproduce.experiment import published
from reproduce.experiment.artifact import Take
from reproduce.experiment.claims import Judgement
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sweep import Level, Point, Sweep, level
from reproduce.experiment.told import told
from reproduce.papers.shared import paper_models
from results.records import Metric

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher

ID = "table_checkpoint"
SIZE, LOAD, LOAD_EACH, SAVE = "checkpoint_size", "load_time", "load_time_every_replica", "save_time"
# fp16 weight, fp32 weight, and Adam's two moments in fp32.
BYTES_PER_PARAMETER = WEIGHT_BYTES + OPTIMIZER_BYTES
TRILLION = "model_1008b"  # the point whose size the paper gives
SAMPLES = 5  # of saving and loading, where they are measured
LAYOUTS = tuple(
    level(f"p={p}, t={t}, d={d}", p=p, t=t, d=d, gpus=p * t * d)
    for p, t, d in ((1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 1, 4))
)
ON_GPUS = {"layers": 16, "hidden": 2048, "heads": 16, "seq": 1024}  # 11 GB, not as many as a training step needs


def derive(point: Point) -> dict[str, float]:
    """14 bytes a parameter (eq. 2), and its times at the point's bandwidths."""
    config = TrainingConfig.from_plain(point.parameters)
    size = BYTES_PER_PARAMETER * parameters(config.model)
    load = size / point.parameters["load_bandwidth"]
    return {
        SIZE: size,
        LOAD: load,
        LOAD_EACH: load * config.parallel.d,
        SAVE: size / point.parameters["save_bandwidth"],
    }


def measured(layouts: Sequence[Level], **model: Any) -> Sweep:
    """Checkpoints of one small model, by the ranks that save and load them."""
    return Sweep(
        series=(Level("", "ranks", {}),),
        x=layouts,
        B=4,
        description=(
            "Size of a checkpoint, and how fast it is saved and loaded, by the ranks that do it: parameters and "
            "optimizer state of a small GPT, in the folder of the results."
        ),
        quantities=(
            Quantity("save_bandwidth", "save", "B/s", "GB/s", 1e9, 2),
            Quantity("load_bandwidth", "load", "B/s", "GB/s", 1e9, 2),
            Quantity(SIZE, "checkpoint", "B", "MB", 1e6, 1),
            Quantity(SAVE, "save", "s", "ms", 1e-3, 1),
            Quantity(LOAD, "load", "s", "ms", 1e-3, 1),
        ),
        columns={"p": "p", "t": "t", "d": "d"},
        **model,
    )


def measure(launcher: "Launcher") -> Take:
    """A function that measures saving and loading a checkpoint of a point's model, in the folder of the results."""
    import tempfile

    from benchmarks.harness.device_setup import Setup
    from benchmarks.harness.points import rate, seconds
    from ptdp_core.interrupts import allowed, held

    measure_here = part("bench", "checkpoint").measure_here

    def take(point: Point) -> Mapping[str, Metric]:
        config, device = TrainingConfig.from_plain(point.parameters), point.parameters["device"]
        setup = Setup(device, samples=SAMPLES)
        with held(), tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=launcher.folder) as folder, allowed():
            arguments = (config.model, config.parallel, setup, folder)
            timings = launcher(measure_here, config.parallel.n, arguments, device)[0]
        metrics = {SIZE: Metric(timings.size, "B", "derived")}
        for what, samples in (("save", timings.save), ("load", timings.load)):
            metrics |= {f"{what}_time": seconds(samples), f"{what}_bandwidth": rate(timings.size, samples, "B/s")}
        return metrics

    return take


ARTIFACT = told(
    __name__,
    sweeps={
        "paper": Sweep(x=paper_models.levels_of_table_1(), paper=ID, **published.configuration(ID)),
        "cpu": measured(LAYOUTS, layers=4, hidden=512, heads=8, vocab=1024),
        "gpu": measured(LAYOUTS[:1], **ON_GPUS),
        "gpus": measured(LAYOUTS, **ON_GPUS),
    },
    derive=derive,
    measure=measure,
)


@ARTIFACT.judge
def checkpoint_size(results: Results) -> Judgement:
    point = results.point(TRILLION)
    ours, paper = results.value(point.key, SIZE), float(point.paper[SIZE].value)
    text = (
        f"{BYTES_PER_PARAMETER} bytes a parameter (fp16 and fp32 weight, two Adam moments) give {ours / 1e12:.2f} TB, "
        f"{ours / paper - 1:+.1%}; 13.8 TB are {paper * BYTES_PER_PARAMETER / ours:.2f} bytes a parameter"
    )
    rounds = abs(ours - paper) <= 0.05e12
    return Judgement("holds" if rounds else "inconclusive", text, numbers_of("derived", "B", size=ours))
