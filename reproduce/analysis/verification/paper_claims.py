"""The claims of the paper that belong to no one figure or table: takeaways, introduction, formulas, related work.

`PAPER` is an artifact like any other, with points that are simulated and claims judged on them, but not one of the
catalogue: it draws nothing, and `reproduce verify` runs it. How its claims are judged is in `takeaways.py` (by
simulation) and `formula_claims.py` (by the paper's own formulas and numbers).
"""

from reproduce.analysis.verification import formula_claims, takeaways
from reproduce.analysis.verification.paper_points import points
from reproduce.experiment.artifact import Artifact, Claim, Quantity

TAKEAWAYS = (
    Claim(
        id="takeaway_1",
        sentence=(
            "Takeaway #1: When considering different forms of model parallelism, tensor model parallelism should "
            "generally be used up to degree $g$ when using $g$-GPU servers, and then pipeline model parallelism can be "
            "used to scale up to larger models across servers."
        ),
        place="Section 3.2",
        fidelity="simulated",
        tolerance="on Figure 13's configurations (p*t = 64), t = g = 8 is the fastest at both batch sizes",
        judge=takeaways.judge_takeaway_1,
    ),
    Claim(
        id="takeaway_2",
        sentence=(
            "Takeaway #2: When using data and model parallelism, a total model-parallel size of $M = t \\cdot p$ "
            "should be used so that the model's parameters and intermediate metadata fit in GPU memory; data "
            "parallelism can be used to scale up training to more GPUs."
        ),
        place="Section 3.3.2",
        fidelity="simulated",
        tolerance=(
            "over every legal (p, t, d) of the 5.9B model on 64 GPUs that fits, no M is more than 1% faster than the "
            "smallest, at each batch size"
        ),
        judge=takeaways.judge_takeaway_2,
    ),
    Claim(
        id="takeaway_3",
        sentence=(
            "Takeaway #3: The optimal microbatch size $b$ depends on the throughput and memory footprint "
            "characteristics of the model, as well as the pipeline depth $p$, data-parallel size $d$, and batch size "
            "$B$."
        ),
        place="Section 3.4",
        fidelity="simulated",
        tolerance="around Figure 16's configurations (either batch size) the best b differs with the model, p, d and B",
        judge=takeaways.judge_takeaway_3,
    ),
)

INTRODUCTION = (
    Claim(
        id="half_of_time_flushing",
        sentence=(
            "As much as 50\\% of time can be spent flushing the pipeline depending on the number of microbatches "
            "injected into the pipeline."
        ),
        place="Section 1",
        fidelity="derived",
        tolerance="over Figure 6's configurations the bubble takes at most 50% of an iteration, at least 45% of one",
        judge=formula_claims.judge_half_flushing,
    ),
    Claim(
        id="more_microbatches_less_flush",
        sentence=(
            "The larger the ratio of number of microbatches to the pipeline size, the smaller the time spent in the "
            "pipeline flush."
        ),
        place="Section 1",
        fidelity="derived",
        tolerance="the executed bubble's share of time falls from each m to the next",
        judge=formula_claims.judge_larger_ratio,
    ),
)

ANALYSIS = (
    Claim(
        id="layers_of_devices",
        sentence=(
            "we could have each device perform computation for two model chunks (each with 2 layers), i.e., device 1 "
            "has layers $1,2,9,10$; device 2 has layers $3,4,11,12$; and so on"
        ),
        place="Section 2.2.2",
        fidelity="derived",
        tolerance="exactly, by the layout of layers and by the stages that the interleaved schedule runs",
        judge=formula_claims.judge_layers_of_devices,
    ),
    Claim(
        id="optimal_checkpoints",
        sentence=(
            "The minimum value of this function is obtained when $c = \\sqrt{l \\cdot \\left(A^\\text{intermediate} / "
            "A^\\text{input}\\right)}$."
        ),
        place="Section 3.5",
        fidelity="derived",
        tolerance="less memory than at 0.1 to 10 times that c, for 1 to 32 layers and ratios of 1 to 100",
        judge=formula_claims.judge_optimal_checkpoints,
    ),
    Claim(
        id="eq_4_approximates",
        sentence="End-to-end training time $\\approx \\dfrac{8TP}{nX}$.",
        place="Section 5.1, eq. 4",
        fidelity="derived",
        tolerance="within 5% of the time by eq. 3, for GPT-3 and the trillion-parameter model",
        judge=formula_claims.judge_eq_4,
    ),
    Claim(
        id="flops_per_iteration",
        sentence=(
            "Thus, for a transformer model with $l$ transformer layers, the total number of floating-point operations "
            "is: $$96Bslh^2\\left(1 + \\dfrac{s}{6h} + \\dfrac{V}{16lh}\\right).$$"
        ),
        place="Appendix; eq. 3",
        fidelity="derived",
        tolerance="the GEMMs of the operator inventory, counted for Table 1's models, to 1e-12",
        judge=formula_claims.judge_flops,
    ),
)

ELSEWHERE = (
    Claim(
        id="data_parallel_to_1536",
        sentence=(
            "GPT-3 was trained to convergence with a batch size of $1536$. Data parallelism thus supports "
            "parallelization to only $1536$ GPUs"
        ),
        place="Section 5.4.3",
        fidelity="derived",
        tolerance="exactly: the largest d that can be configured",
        judge=formula_claims.judge_data_parallel_limit,
    ),
    Claim(
        id="pipeline_up_to_layers",
        sentence=(
            "pipeline parallelism in isolation can still only scale to a number of devices equal to the number of "
            "layers in the model"
        ),
        place="Section 6",
        fidelity="derived",
        tolerance="exactly: the largest p that can be configured",
        judge=formula_claims.judge_pipeline_limit,
    ),
)

PAPER = Artifact(
    id="paper_claims",
    label="The paper as a whole",
    section="1 to 6",
    title="Takeaways, and sentences that belong to no one figure",
    description=(
        "Claims of the abstract, the introduction, the analysis and the related work that no figure or table judges, "
        "and the configurations they are judged on. It draws nothing: reproduce verify runs it."
    ),
    fidelities=("simulated",),
    points=points,
    quantities=(Quantity(takeaways.THROUGHPUT, "throughput per GPU", "FLOP/s", "teraFLOP/s", 1e12, 1),),
    columns={"p": "p", "t": "t", "d": "d", "b": "b", "B": "B"},
    claims=(*TAKEAWAYS, *INTRODUCTION, *ANALYSIS, *ELSEWHERE),
)
