"""Figure 17: sequences per second with and without activation recomputation, 145 billion parameters, 128 GPUs."""

from benchmarks.records import Number
from reproduce.artifacts.shared import grids, laptop
from reproduce.artifacts.shared.grids import SEQUENCES
from reproduce.artifacts.shared.measured_experiments import EXPERIMENTS
from reproduce.artifacts.shared.measured_points import with_measured
from reproduce.artifacts.shared.model_sizes import size_claim
from reproduce.experiment.artifact import (
    Artifact,
    Claim,
    Judgement,
    MissingResultError,
    Point,
    Quantity,
    Results,
    XAxis,
)
from reproduce.experiment.claims import holds_if, listed
from reproduce.output.figures import line_plot

ID = "fig_recomputation"
WITH, WITHOUT = "With recomputation", "Without recomputation"
LOSS = (0.28, 0.38)  # "up to 33%", within 5 percentage points
TWO_TIMES = (1.6, 2.4)  # "up to 2x", within 20%


def points(scale: str) -> tuple[Point, ...]:
    """With and without recomputation at nine batch sizes; those that do not fit in memory come out 'oom'."""
    if scale == laptop.SCALE:
        return laptop.points(ID)
    lines = [
        grids.Line(WITH, "full", {"recompute": "full"}, "Act. recomputation"),
        grids.Line(WITHOUT, "none", {"recompute": "none"}, "W/o act. recomputation"),
    ]
    return grids.grid(ID, lines, grids.batch_marks(ID), SEQUENCES, "sequences/s", 1.0)


def _line(results: Results, series: str) -> dict[int, float]:
    """Sequences/s by batch size where it fits. Raises `MissingResultError` for points that failed, or if none fits."""
    found = {}
    for point in results.points:
        if point.series == series and point.status != "oom":
            found[int(str(point.parameters["B"]))] = results.value(point.key, SEQUENCES)
    if not found:
        raise MissingResultError(f"no point of {series!r} fits in memory")
    return found


def judge_lower(results: Results) -> Judgement:
    """How much throughput recomputation costs at most, where both fit."""
    full, none = _line(results, WITH), _line(results, WITHOUT)
    losses = {B: 1 - full[B] / none[B] for B in none if B in full}
    worst = max(losses.values())
    text = f"throughput lost to recomputation, by batch size: {listed(losses, '{:.0%}')}. With a backward "
    text += "pass twice as long as the forward pass, one more forward pass is a third more time: 25% less throughput"
    return holds_if(LOSS[0] <= worst <= LOSS[1], text, {"largest_loss": grids.ratio(worst, results.fidelity)})


def judge_needed(results: Results) -> Judgement:
    """Whether every batch size fits with recomputation, and the larger ones do not fit without."""
    out = {
        series: [int(str(p.parameters["B"])) for p in results.points if p.series == series and p.status == "oom"]
        for series in (WITH, WITHOUT)
    }
    fits = list(_line(results, WITHOUT))
    needed = bool(out[WITHOUT]) and not out[WITH] and min(out[WITHOUT]) > max(fits)
    text = (
        f"without recomputation B={max(fits)} is the largest that fits"
        + (f", B={', '.join(map(str, out[WITHOUT]))} do not" if out[WITHOUT] else ", which is all of them")
        + (f"; with it B={', '.join(map(str, out[WITH]))} do not fit" if out[WITH] else "; with it all fit")
    )
    return holds_if(needed, text, {"largest_batch_without": Number(max(fits), "count", results.fidelity)})


def judge_higher(results: Results) -> Judgement:
    """The best throughput with recomputation over the best without."""
    full, none = _line(results, WITH), _line(results, WITHOUT)
    best, best_none = max(full, key=lambda B: full[B]), max(none, key=lambda B: none[B])
    ratio = full[best] / none[best_none]
    text = (
        f"{full[best]:.1f} sequences/s at B={best} with recomputation, {none[best_none]:.1f} at B={best_none} without: "
        f"{ratio:.2f} times"
    )
    holds = TWO_TIMES[0] <= ratio <= TWO_TIMES[1] and best > best_none
    return holds_if(holds, text, {"ratio": grids.ratio(ratio, results.fidelity)})


CLAIMS = (
    Claim(
        id="up_to_33_percent_lower",
        sentence=(
            r"For small batch sizes, activation recomputation leads to up to $33\%$ lower throughput (in sequences per "
            "second) due to the extra forward pass that needs to be executed during the backward pass."
        ),
        place="Section 5.6",
        fidelity="simulated",
        tolerance="the largest loss over the batch sizes that fit both ways is between 28% and 38%",
        judge=judge_lower,
    ),
    Claim(
        id="needed_for_larger_batches",
        sentence="However, activation recomputation is needed to support larger batch sizes.",
        place="Section 5.6",
        fidelity="simulated",
        tolerance="every batch size fits with recomputation; without it, some do not, and these are the largest",
        judge=judge_needed,
        scales=laptop.SCALES,
    ),
    Claim(
        id="up_to_two_times_higher",
        sentence=(
            r"Throughput at large batch sizes with activation recomputation is up to $2\times$ higher than the best "
            "throughput achieved without activation recomputation (for a smaller batch size) due to a smaller pipeline "
            "bubble."
        ),
        place="Section 5.6",
        fidelity="simulated",
        tolerance="best with recomputation over best without between 1.6 and 2.4, the latter at a smaller batch size",
        judge=judge_higher,
        scales=laptop.SCALES,
    ),
    size_claim(
        "model_size",
        (
            "Throughput (in sequences per second) with and without activation recomputation for a GPT model with 145 "
            "billion parameters using 128 A100 GPUs ($(t, p) = (8, 16)$)."
        ),
        "Figure 17, caption",
        (("145", "full_B1"),),
    ),
)

ARTIFACT = with_measured(
    Artifact(
        id=ID,
        label="Figure 17",
        section="5.6",
        title="Activation recomputation, 145 billion parameters on 128 GPUs",
        description=(
            "Sequences per second against the batch size, with full recomputation and without any; t=8, p=16, 80 "
            "layers, hidden size 12288, 96 heads, microbatch size 1, non-interleaved 1F1B (with B < 16, m < p). Points "
            "that do not fit in memory are reported with the bytes they need."
        ),
        fidelities=("simulated", "emulated"),
        scales=laptop.SCALES,
        settings=laptop.settings(ID),
        points=points,
        quantities=(
            Quantity(SEQUENCES, "throughput", "sequences/s", "sequences/s", 1, 2, axis="Throughput (sequences/s)"),
            *grids.QUANTITIES[1:],
        ),
        columns={"B": "B"},
        x_axis=XAxis("B", "Batch size (sequences)", scale="log2"),
        claims=CLAIMS,
        draw=line_plot,
        notes=grids.notes,
    ),
    EXPERIMENTS[ID],
)
