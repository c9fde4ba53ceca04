"""Figure 15: tensor against data parallelism, 5.9 billion parameters on 64 GPUs."""

from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results
from reproduce.experiment.told import told
from reproduce.output.figures import line_plot
from reproduce.papers.shared import efficiency

ARTIFACT = told(__name__, further=efficiency.kernel_metrics, draw=line_plot)


@ARTIFACT.judge
def tensor_every_microbatch(results: Results) -> Judgement:
    r"""With larger batch sizes and a microbatch size of 1, data-parallel communication is infrequent; the all-to-all
    communication required in tensor model parallelism needs to be performed for \emph{every} microbatch in a batch.
    """
    tensor, data = (results.by_batch(f"{use}_traffic", "t") for use in ("tensor", "data"))
    per_sequence = {B: {t: sent / B for t, sent in line.items()} for B, line in tensor.items()}
    spreads = {
        name: max(max(sent) / min(sent) - 1 for sent in zip(*(line.values() for line in lines.values()), strict=True))
        for name, lines in (("tensor", per_sequence), ("data", data))
    }
    text = (
        f"over the batch sizes, tensor-parallel bytes per sequence vary by at most {spreads['tensor']:.1%}, and "
        f"data-parallel bytes per iteration by at most {spreads['data']:.1%}"
    )
    return holds_if(max(spreads.values()) <= 1e-9, text, results.numbers(spread=spreads))
