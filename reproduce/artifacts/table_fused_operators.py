"""Section 5.8: throughput with and without the fused operators of Section 4.2."""

from collections.abc import Callable

from benchmarks.records import Number, PaperValue
from reproduce.artifacts.shared import measured_fusion, table_1
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.experiment import published
from reproduce.experiment.artifact import Artifact, Claim, Judgement, Point, Quantity, Results, Scalar
from reproduce.experiment.claims import holds_if

ID = "table_fused_operators"
THROUGHPUT = "throughput_per_gpu"
GPT_3, LARGER = "GPT-3 175B", "530B"
GAIN_TOLERANCE = 0.05
STEP = 1e12  # the text gives whole teraFLOP/s


def _configurations() -> dict[str, dict[str, Scalar]]:
    """What the paper leaves open: one model replica, p and t as elsewhere, 1F1B, a batch large enough for p."""
    gpt3, constants = published.artifact("fig_interleaved")["config"], published.constants()
    shared = {"seq": constants["sequence_length"], "vocab": constants["vocabulary"], "d": 1, "v": 1, "b": 1}
    (larger,) = (row for row in table_1.rows() if round(row.billions) == 530)
    sizes = ("layers", "hidden", "heads")
    return {
        GPT_3: {**{name: gpt3[name] for name in sizes}, **shared, "p": 12, "t": 8, "B": 60},
        LARGER: {**{name: larger.parameters[name] for name in sizes}, **shared, "p": 35, "t": 8, "B": 280},
    }


def points(scale: str) -> tuple[Point, ...]:
    """Both models, unfused and fused."""
    configurations = _configurations()
    found = []
    for row in published.artifact(ID)["rows"]:
        for name, fused in (("unfused", False), ("fused", True)):
            value = PaperValue(row[f"{name}_tflops"] * 1e12, "FLOP/s", "text", quantum=STEP)
            found.append(
                Point(
                    key=f"{row['model'].lower().replace('-', '').replace(' ', '_')}_{name}",
                    series=row["model"],
                    label=name,
                    parameters={**configurations[row["model"]], "fused": fused},
                    paper={THROUGHPUT: value},
                )
            )
    return tuple(found)


def _judge(model: str, stated: float) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        ours, paper = (read(model, THROUGHPUT, "fused") for read in (results.series, results.paper_series))
        gain, theirs = (values[True] / values[False] - 1 for values in (ours, paper))
        text = (
            f"{gain:+.1%}, from {ours[False] / 1e12:.1f} to {ours[True] / 1e12:.1f} teraFLOP/s per GPU "
            f"(the paper's numbers: {theirs:+.1%})"
        )
        numbers = {"gain": Number(gain, "1", results.fidelity), "paper_gain": Number(theirs, "1", "paper")}
        return holds_if(abs(gain - stated) <= GAIN_TOLERANCE, text, numbers)

    return judge


TOLERANCE = "the gain within 5 percentage points; configuration assumed, the paper gives none"
CLAIMS = (
    Claim(
        id="fusion_175b",
        sentence=(
            r"For the GPT-3 model (175 billion parameters), throughput increased by 19\% with fusion (113 teraFLOP/s "
            "per "
            "GPU to 135 teraFLOP/s per GPU)."
        ),
        place="Section 5.8",
        fidelity="simulated",
        tolerance=TOLERANCE,
        judge=_judge(GPT_3, 0.19),
    ),
    Claim(
        id="fusion_530b",
        sentence=(
            "For the larger GPT model with 530 billion parameters (model configuration in "
            r"Figure~\ref{fig:megatron_scaling}), throughput increased by 11\% (133 teraFLOP/s per GPU to 148 "
            "teraFLOP/s per GPU)."
        ),
        place="Section 5.8",
        fidelity="simulated",
        tolerance=TOLERANCE,
        judge=_judge(LARGER, 0.11),
    ),
)


def notes(results: Results) -> tuple[str, ...]:
    """What was assumed, and what the simulator calls unfused."""
    return (
        "Not stated in the paper: GPUs, batch size, p, t and schedule of these runs. Assumed: one replica (d=1), 1F1B, "
        "and p=12, t=8, B=60 for 175B (the largest batch of Figure 12, where the paper has the same 135 teraFLOP/s) "
        "and "
        "p=35, t=8, B=280 (m = 8p) for 530B.",
        "Unfused: bias + GeLU, bias + dropout + add, and scale + mask + softmax as single kernels, the latter in fp32 "
        "copies of the scores, and the transposes of the [b, s, a, h] layout (Section 4.2), counted in bytes and "
        "kernels.",
    )


ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Section 5.8",
        section="5.8",
        title="Fused operators: throughput with and without",
        description=(
            "Throughput per GPU with the operators and the data layout of Section 4.2 unfused and fused, for 175 and "
            "530 billion parameters. The configurations are assumed: the paper gives none."
        ),
        fidelities=("simulated",),
        points=points,
        quantities=(
            Quantity(THROUGHPUT, "throughput per GPU", "FLOP/s", "teraFLOP/s", 1e12, 1),
            Quantity("iteration_time", "iteration", "s", "s", 1, 2),
            Quantity("peak_memory", "peak memory", "B", "GB", 1e9, 1),
        ),
        columns={"fused": "fused", "p": "p", "t": "t", "B": "B"},
        claims=CLAIMS,
        notes=notes,
    ),
    measured_fusion.EXPERIMENTS,
    quantities=measured_fusion.QUANTITIES,
    columns=measured_fusion.COLUMNS,
    measure=measured_fusion.measure,
)
