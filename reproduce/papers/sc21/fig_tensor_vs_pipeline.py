"""Figure 13: tensor against pipeline parallelism, 162.2 billion parameters on 64 GPUs."""

from ptdp_core.formulas import parameters
from ptdp_core.schedules import bubble_fraction, build
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, argmax, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency

SIZE_IN_TEXT = 161  # billions of parameters, of the model that is of 162.2 in the caption


ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot)


@ARTIFACT.judge
def both_in_conjunction(results: Results) -> Judgement:
    lines = results.by_batch(q.THROUGHPUT, "t")
    shares = {
        B: [v / max(line.values()) for v in (list(line.values())[i] for i in (0, -1))] for B, line in lines.items()
    }
    has_ends = all(1 in {point.parameters[size] for point in results.points} for size in ("p", "t"))
    text = (
        "share of the best throughput at the figure's two ends, most tensor and most pipeline parallel: "
        + "; ".join(f"B={B}: {a:.0%} and {b:.0%}" for B, (a, b) in shares.items())
        + ("" if has_ends else ". The figure has neither p=1 nor t=1")
    )
    return holds_if(all(share < 1 for ends in shares.values() for share in ends), text)


@ARTIFACT.judge
def bubble_in_terms_of_t(results: Results) -> Judgement:
    off = {}
    for point in results.points:
        p, t, m = (point.parameters[name] for name in ("p", "t", "B"))
        n = p * t * point.parameters["d"]
        off[f"t={t}, m={m}"] = abs(float(bubble_fraction(build("1f1b", n // t, m), 1, 2)) - (n / t - 1) / m)
    worst = argmax(off)
    text = f"executed bubble against (n/t-1)/m in {len(off)} configurations: largest difference {off[worst]:.1e}"
    return holds_if(off[worst] <= 1e-9, text, numbers_of("derived", largest_difference=off[worst]))


@ARTIFACT.judge
def model_size_in_text(results: Results) -> Judgement:
    model = model_of(results.points[0].parameters)
    count = parameters(model)
    text = (
        f"161 billion here and 162.2 billion in the caption of Figure 13 are the same model; eq. (2) gives "
        f"{count / 1e9:.2f} billion ({12 * model.layers * model.hidden**2 / 1e9:.1f} without embeddings)"
    )
    return consistent_if(round(count / 1e9) == SIZE_IN_TEXT, text, numbers_of("derived", "count", parameters=count))
