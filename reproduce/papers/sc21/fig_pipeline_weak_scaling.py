"""Figure 11: weak scaling of the non-interleaved pipeline schedule; the model grows with the pipeline."""

from ptdp_core.formulas import bubble_fraction
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, argmax, listed
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared.paper_models import size_claim

ARTIFACT = told(__name__, draw=line_plot)


@ARTIFACT.judge
def higher_batch_scales_better(results: Results) -> Judgement:
    """As expected, the higher batch size scales better since the pipeline bubble is amortized over more
    microbatches.
    """
    lines = {B: list(by_p.values()) for B, by_p in results.by_batch(q.THROUGHPUT, "p").items()}
    kept = {B: line[-1] / line[0] for B, line in lines.items()}
    low, high = min(kept), max(kept)
    return holds_if(
        kept[high] > kept[low],
        f"share of the throughput of p=1 that is left at the largest p, by batch size: {listed(kept, '{:.0%}')}",
        results.numbers(kept_b=kept),
    )


@ARTIFACT.judge
def bubble_behaves_as_formula(results: Results) -> Judgement:
    r"""Figure~\ref{fig:pipeline_parallelism_weak_scaling} shows throughput per GPU for two different batch sizes to
    illustrate the impact of the pipeline bubble, which behaves as $\frac{p-1}{m}$
    (\S\ref{sec:pipeline_parallelism_bubble}).
    """
    bubbles = results.by_batch("bubble_fraction", "p")
    apart = {
        f"p={p}, m={B}": bubble / bubble_fraction(p, B) - 1
        for B, by_p in bubbles.items()
        for p, bubble in by_p.items()
        if p > 1
    }
    worst = argmax(apart, abs)
    text = f"executed bubble against (p-1)/m: {listed(apart, '{:+.0%}')}"
    return holds_if(abs(apart[worst]) <= 0.10, text, results.numbers(largest_difference=apart[worst]))


size_claim(
    ARTIFACT,
    "model_sizes",
    "with a pipeline-parallel size of 1, we use a model with 3 transformer layers and ~15 billion parameters, and with "
    "a pipeline-parallel size of 8, we use a model with 24 transformer layers and ~121 billion parameters.",
    "Section 5.3.1",
    (("15", "B8_p1_layers3_d1"), ("121", "B8_p8_layers24_d1")),
    about=True,
)
