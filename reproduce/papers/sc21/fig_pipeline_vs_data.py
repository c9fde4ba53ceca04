"""Figure 14: pipeline against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.experiment import published
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import Results, listed, numbers_of
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ARTIFACT = told(__name__, draw=line_plot)


@ARTIFACT.judge
def fits_model_parallel_2(results: Results) -> Judgement:
    shallowest = [point for point in results.points if point.parameters["p"] == 2]
    out = [point.series for point in shallowest if point.status == "oom"]
    peaks = {point.series: results.value(point.key, "peak_memory") for point in shallowest if point.series not in out}
    text = "peak memory with p=2, t=1: " + listed(peaks, "{:.1f} GB", 1e9)
    text += f"; out of memory: {', '.join(out)}" if out else ""
    numbers = results.numbers("B", peak_memory_=dict(enumerate(peaks.values())))
    return holds_if(bool(peaks) and not out, text, numbers)


@ARTIFACT.judge
def three_batch_sizes(results: Results) -> Judgement:
    sizes = sorted({row["B"] for row in published.rows("fig_pipeline_vs_data")})
    text = f"the plot and the authors' script have {len(sizes)} batch sizes: {', '.join(map(str, sizes))}"
    numbers = numbers_of("paper", "count", batch_sizes=len(sizes))
    return consistent_if(len(sizes) == 3, text, numbers)
