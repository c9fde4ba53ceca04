"""How Figures 3 and 4 show what `reproduce.output.traces.derive` computes of a schedule, and what was clocked."""

from reproduce.experiment.artifact import Quantity

FIGURE = "the figure"  # the series of what is drawn
QUANTITIES = (
    Quantity("bubble_fraction", "bubble", "1", "%", 0.01, 2),
    Quantity("makespan", "time", "1", "t_f", digits=1),
    Quantity("peak_stash", "peak stash", "count", "microbatches", digits=1),
    Quantity("messages", "messages", "count", "", digits=0),
    Quantity("formula_bubble_fraction", "bubble by (p-1)/(vm)", "1", "%", 0.01, 2),
    Quantity("iteration_time", "iteration", "s", "s", 1, 3),
)
