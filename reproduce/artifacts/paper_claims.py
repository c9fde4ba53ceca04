"""The claims of the paper that belong to no one figure or table: takeaways, introduction, formulas, related work.

It draws nothing. How its claims are judged is in `takeaways` (by simulation) and `formula_claims` (by the paper's own
formulas and numbers), its configurations are in `paper_points`.
"""

from reproduce.artifacts.shared import formula_claims, takeaways
from reproduce.artifacts.shared.paper_points import points
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Sweep

ARTIFACT = Artifact(
    id="paper_claims",
    label="The paper as a whole",
    section="1 to 6",
    title="Takeaways, and sentences that belong to no one figure",
    description=(
        "Claims of the abstract, the introduction, the analysis and the related work that no figure or table judges, "
        "and the configurations they are judged on."
    ),
    quantities=(q.THROUGHPUT,),
    sweeps={"paper": Sweep(points)},
    columns={"p": "p", "t": "t", "d": "d", "b": "b", "B": "B"},
    notes=None,
)

ARTIFACT.claim(
    "Takeaway #1: When considering different forms of model parallelism, tensor model parallelism should "
    "generally be used up to degree $g$ when using $g$-GPU servers, and then pipeline model parallelism can be "
    "used to scale up to larger models across servers.",
    "Section 3.2",
    "on Figure 13's configurations (p*t = 64), t = g = 8 is the fastest at both batch sizes",
)(takeaways.takeaway_1)

ARTIFACT.claim(
    "Takeaway #2: When using data and model parallelism, a total model-parallel size of $M = t \\cdot p$ "
    "should be used so that the model's parameters and intermediate metadata fit in GPU memory; data "
    "parallelism can be used to scale up training to more GPUs.",
    "Section 3.3.2",
    "over every legal (p, t, d) of the 5.9B model on 64 GPUs that fits, no M is more than 1% faster than the "
    "smallest, at each batch size",
)(takeaways.takeaway_2)

ARTIFACT.claim(
    "Takeaway #3: The optimal microbatch size $b$ depends on the throughput and memory footprint "
    "characteristics of the model, as well as the pipeline depth $p$, data-parallel size $d$, and batch size "
    "$B$.",
    "Section 3.4",
    "around Figure 16's configurations (either batch size) the best b differs with the model, p, d and B",
)(takeaways.takeaway_3)

ARTIFACT.claim(
    "As much as 50\\% of time can be spent flushing the pipeline depending on the number of microbatches "
    "injected into the pipeline.",
    "Section 1",
    "over Figure 6's configurations the bubble takes at most 50% of an iteration, at least 45% of one",
    fidelity="derived",
)(formula_claims.half_of_time_flushing)

ARTIFACT.claim(
    "The larger the ratio of number of microbatches to the pipeline size, the smaller the time spent in the "
    "pipeline flush.",
    "Section 1",
    "the executed bubble's share of time falls from each m to the next",
    fidelity="derived",
)(formula_claims.more_microbatches_less_flush)

ARTIFACT.claim(
    "we could have each device perform computation for two model chunks (each with 2 layers), i.e., device 1 "
    "has layers $1,2,9,10$; device 2 has layers $3,4,11,12$; and so on",
    "Section 2.2.2",
    "exactly, by the layout of layers and by the stages that the interleaved schedule runs",
    fidelity="derived",
)(formula_claims.layers_of_devices)

ARTIFACT.claim(
    "The minimum value of this function is obtained when $c = \\sqrt{l \\cdot \\left(A^\\text{intermediate} / "
    "A^\\text{input}\\right)}$.",
    "Section 3.5",
    "less memory than at 0.1 to 10 times that c, for 1 to 32 layers and ratios of 1 to 100",
    fidelity="derived",
)(formula_claims.optimal_checkpoints)

ARTIFACT.claim(
    "End-to-end training time $\\approx \\dfrac{8TP}{nX}$.",
    "Section 5.1, eq. 4",
    "within 5% of the time by eq. 3, for GPT-3 and the trillion-parameter model",
    fidelity="derived",
)(formula_claims.eq_4_approximates)

ARTIFACT.claim(
    "Thus, for a transformer model with $l$ transformer layers, the total number of floating-point operations "
    "is: $$96Bslh^2\\left(1 + \\dfrac{s}{6h} + \\dfrac{V}{16lh}\\right).$$",
    "Appendix; eq. 3",
    "the GEMMs of the operator inventory, counted for Table 1's models, to 1e-12",
    fidelity="derived",
)(formula_claims.flops_per_iteration)

ARTIFACT.claim(
    "GPT-3 was trained to convergence with a batch size of $1536$. Data parallelism thus supports "
    "parallelization to only $1536$ GPUs",
    "Section 5.4.3",
    "exactly: the largest d that can be configured",
    fidelity="derived",
)(formula_claims.data_parallel_to_1536)

ARTIFACT.claim(
    "pipeline parallelism in isolation can still only scale to a number of devices equal to the number of "
    "layers in the model",
    "Section 6",
    "exactly: the largest p that can be configured",
    fidelity="derived",
)(formula_claims.pipeline_up_to_layers)
