"""Figure 15: tensor against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency

ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot)
