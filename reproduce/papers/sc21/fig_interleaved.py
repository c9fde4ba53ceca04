"""Figure 12: throughput per GPU of the interleaved and the non-interleaved schedule, 175B, 96 GPUs."""

from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement
from reproduce.experiment.results import Results, argmax, listed, numbers_of
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot

DEFAULT, INTERLEAVED = "Non-interleaved", "Interleaved"
GAIN = 0.10  # "10+%", "as much as 10%"


ARTIFACT = told(__name__, draw=line_plot)


def _gains(results: Results) -> dict[int, float]:
    return results.gains(INTERLEAVED, DEFAULT, q.THROUGHPUT, "B")


@ARTIFACT.judge
def as_much_as_10_percent(results: Results) -> Judgement:
    default, interleaved = (results.paper_series(series, q.THROUGHPUT, "B") for series in (DEFAULT, INTERLEAVED))
    gains = _gains(results.papers())
    numbers = numbers_of("paper", paper_gain_b=gains)
    # Each plotted value may be off by half its rounding step; a contradiction must be larger than that.
    best_batch = argmax(gains)
    half = max(point.paper[q.THROUGHPUT.name].quantum or 0.0 for point in results.points) / 2
    least, most = (
        (interleaved[best_batch] + sign * half) / (default[best_batch] - sign * half) - 1 for sign in (-1, 1)
    )
    if least > GAIN + 0.005 or most < GAIN - 0.005:
        text = f"the paper's own Figure 12 shows {'more' if least > GAIN else 'less'} than 10%; gain by batch size: "
        return Judgement("paper inconsistent", f"{text}{listed(gains)}", numbers)
    return Judgement("holds", f"the paper's points, by batch size: {listed(gains)}", numbers)
