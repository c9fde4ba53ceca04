"""Figure 11: weak scaling of the non-interleaved pipeline schedule; the model grows with the pipeline."""

from ptdp_core.formulas import bubble_fraction
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, argmax, listed
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

ARTIFACT = told(__name__, draw=line_plot)


@ARTIFACT.judge
def bubble_behaves_as_formula(results: Results) -> Judgement:
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
