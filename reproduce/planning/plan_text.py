"""What `reproduce plan` says: the takeaways step by step, the ranking, and what makes the differences.

Every number here is simulated. The annex `plan` writes the same to disk.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import chain
from typing import Any

from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.simulator import Estimate
from reproduce.experiment import margins
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import ITERATION
from reproduce.experiment.results import argmax
from reproduce.output.columns import Table, chosen, keyed
from reproduce.planning import elasticities, run_cost, untried
from reproduce.planning.advice import as_typed
from reproduce.planning.cells import FIELDS
from reproduce.planning.plan import TrainingPlan
from reproduce.planning.search import NEAR_TIE, order
from reproduce.planning.space import tensor_sizes
from reproduce.planning.time_shares import time_differences
from reproduce.planning.what_if import LORA_FLOPS

GB = 1e9
SHOWN_USES = 4
LINKS = {"pipeline": "p2p", "tensor": "tensor", "data": "data"}
SIZES = ("p", "t", "d", "v", "b")
# The sizes that came after the paper, with their usual values; they are named where they are in use.
LATER_SIZES = {
    item.name: item.default
    for item in fields(ParallelConfig)
    if item.metadata["group"] == "Layout" and item.metadata["later"]
}
# What a plan chooses, sizes first, and the fields that it leaves alone.
IN_ORDER = dict.fromkeys((*SIZES, *LATER_SIZES, *(item.name for item in fields(ParallelConfig))))
CHOSEN = {*SIZES, *LATER_SIZES, *chain.from_iterable(FIELDS.values())}
PARAMETERS = tuple(name for name in IN_ORDER if name in CHOSEN)
OTHERS = tuple(name for name in IN_ORDER if name not in CHOSEN)
# What a GPU's memory is taken by: a heading, and the uses of `Estimate.memory_bytes` under it.
MEMORY = {
    "weights": ("weights",),
    "gradients": ("gradients", "unscaled_gradients"),
    "optimizer": ("optimizer",),
    "activations": ("stashed_activations",),
    "working set": ("working_activations", "boundary_buffers"),
}
TECHNIQUE = "schedule, recomputed, ..."
RANKING = (
    *keyed("rank", "which", *SIZES),
    *keyed("iteration", unit="s", form=".3f"),
    *keyed("MFU", unit="%", form=".1f", factor=0.01),
    *keyed("slower by", unit="%", form=".1f", factor=0.01),
    *keyed(TECHNIQUE),
    *keyed("stages"),
    *keyed("interval", unit="s"),
    *keyed("tokens/s", unit="per GPU", form=".0f"),
    *keyed("memory", unit="GB", form=".1f", factor=GB),
    *keyed("free", unit="%", form=".0f", factor=0.01),
    *keyed("idle", unit="%", form="z.1f", factor=0.01),
    *keyed("model teraFLOP/s", unit="per GPU", form=".1f", factor=1e12),
    *keyed(*(f"{name} sent" for name in LINKS.values()), unit="GB", form=".1f", factor=GB),
)


def marked(plan: TrainingPlan) -> dict[str, Estimate]:
    """The configurations that are compared with the best, by what they are; one that is several things comes once."""
    paper = plan.paper.estimate if plan.paper else None
    named = {"takeaways": plan.takeaways.chosen, "best by the paper's means": plan.papers_best, "paper": paper}
    names: dict[TrainingConfig, list[str]] = {}
    estimates: dict[TrainingConfig, Estimate] = {}
    for name, estimate in named.items():
        if estimate is not None and estimate.fits:
            names.setdefault(estimate.config, []).append(name)
            estimates[estimate.config] = estimate
    ranked = sorted(estimates.values(), key=order, reverse=True)
    return {", ".join(names[estimate.config]): estimate for estimate in ranked}


def shown(plan: TrainingPlan) -> list[tuple[int | None, Estimate, str]]:
    """Rank, configuration and what it is: the best of the ranking, then the marked ones, whose rank may be unknown."""
    names = {estimate.config: name for name, estimate in marked(plan).items()}
    best = plan.search.ranked[: plan.top]
    among = {estimate.config for estimate in best}
    others = [estimate for estimate in marked(plan).values() if estimate.config not in among]
    return [
        (plan.search.rank(estimate.config), estimate, names.get(estimate.config, ""))
        for estimate in (*best, *reversed(others))
    ]


def title(plan: TrainingPlan) -> str:
    """The job in one line."""
    model = plan.job.model
    sizes = f"{model.layers} layers, hidden size {model.hidden}, {model.heads} heads"
    name = "" if plan.name == "own" else f"{plan.name.upper()} "
    return ", ".join([f"{name}({sizes}) on {plan.job.n} GPUs of {plan.cluster_name}, batch {plan.job.B}", *same(plan)])


def same(plan: TrainingPlan) -> list[str]:
    """What every layout has, as 'lora_rank=16'."""
    return [f"{name}={as_typed(value)}" for name, value in plan.job.fields]


def ranking(plan: TrainingPlan, columns: Sequence[str] = ()) -> Table:
    """The configurations in the order of the ranking; of `RANKING` the columns with these names, or all."""
    known = margins.read(plan.cluster_name)
    rows = []
    for rank, estimate, which in shown(plan):
        parallel = estimate.config.parallel
        which = ", ".join(filter(None, (which, "tight" if plan.is_tight(estimate) else "")))
        row: dict[str, Any] = {
            "rank": rank or "",
            "which": which,
            TECHNIQUE: techniques(parallel),
            "stages": parallel.pipeline_layout,
        }
        row |= {size: getattr(parallel, size) for size in SIZES}
        row |= {"iteration": estimate.iteration_time, "MFU": estimate.model_flops_utilization}
        row["slower by"] = slower(estimate, plan.best)
        if known and (margin := known.of("iteration_time", estimate.config.to_plain())):
            interval = margin.interval(estimate.iteration_time)
            row["interval"] = f"{interval.low:.2f} to {interval.high:.2f}"
        row["tokens/s"] = METRICS["tokens_per_s_per_gpu"].simulated(estimate, plan.cluster)
        row |= {"memory": estimate.peak_memory, "free": free(plan, estimate)}
        row["idle"] = estimate.idle_fraction
        row["model teraFLOP/s"] = estimate.model_throughput_per_gpu
        row |= {f"{name} sent": estimate.traffic[link] for link, name in LINKS.items()}
        rows.append(row)
    shown_of = {"interval": known is not None, "stages": any(row["stages"] for row in rows)}
    return Table([column for column in chosen(RANKING, columns) if shown_of.get(column.what, True)], rows)


def memory_table(plan: TrainingPlan) -> Table:
    """What the memory of the fullest GPU is taken by, for the same configurations."""
    rows = []
    for rank, estimate, which in shown(plan):
        parts = {kind: sum(estimate.memory_bytes[use] for use in uses) for kind, uses in MEMORY.items()}
        rows.append({"rank": rank or "", "which": which, **parts, "together": estimate.peak_memory})
    return Table([*keyed("rank", "which"), *keyed(*MEMORY, "together", unit="GB", form=".1f", factor=GB)], rows)


def further_tables(plan: TrainingPlan) -> list[tuple[Table, str]]:
    """The whole run for the same configurations, and what limits the best, with their titles; what was asked for."""
    tables = []
    if plan.run is not None:
        rows = [
            (
                f"{rank or ''} {which}".strip(),
                {name: METRICS[name].simulated(estimate, plan.cluster) for name in run_cost.SHOWN},
                run_cost.document(estimate, plan.cluster, plan.run),
            )
            for rank, estimate, which in shown(plan)
        ]
        tables.append((run_cost.table(rows), "The whole run by rank, derived from the simulated iteration"))
    if plan.sensitivity:
        changes = elasticities.table(plan.further["elasticities"])
        tables.append((changes, "What limits rank 1: one thing changed at a time, simulated"))
    return tables


def techniques(parallel: ParallelConfig) -> str:
    """The schedule, what is recomputed, and what else a configuration uses: 'zb-h1, none, e=8, SP, sdpa, ZeRO-1'."""
    also = [f"{name}={value}" for name, usual in LATER_SIZES.items() if (value := getattr(parallel, name)) != usual]
    also += [name for name, on in (("SP", parallel.sequence_parallel), ("sdpa", not parallel.writes_scores)) if on]
    states = {"zero2": "ZeRO-2", "zero3": "ZeRO-3"}.get(parallel.data_parallel, "ZeRO-1")
    also += [states] if parallel.sharded_optimizer or states == "ZeRO-3" else []
    also += [f"in parts of {parallel.zero3_shards}"] if parallel.zero3_shards else []
    also += [f"offloads {parallel.offload.replace(',', '+')}"] if parallel.offload else []
    also += [parallel.fp8_recipe] if parallel.fp8_recipe != "none" else []
    modules = parallel.recompute_modules if parallel.recompute == "selective" else ""
    again = modules.replace(",", "+") if modules and modules != "core_attn" else parallel.recompute
    return ", ".join((parallel.schedule, again, *also))


def free(plan: TrainingPlan, estimate: Estimate) -> float:
    """The share of the memory to fill that the fullest GPU has free."""
    return 1 - estimate.peak_memory / plan.cluster.usable_memory


def slower(estimate: Estimate, best: Estimate) -> float:
    """How much longer an iteration takes than the best one's, relative to it; negative for a faster one."""
    return estimate.iteration_time / best.iteration_time - 1


def place(plan: TrainingPlan, estimate: Estimate) -> str:
    """How far a configuration is from rank 1; where it is faster, why it comes later."""
    best = plan.best
    ahead = slower(estimate, best) < 0
    how = f"{abs(slower(estimate, best)):.1%} {'faster' if ahead else 'slower'} than rank 1"
    how += " and tight" if plan.is_tight(estimate) else ""
    if ahead and free(plan, estimate) < free(plan, best):
        how += f", which comes first as it leaves {free(plan, best):.0%} of the memory free, not "
        how += f"{free(plan, estimate):.0%}"
    return how


def undecided(plan: TrainingPlan, estimate: Estimate) -> bool:
    """Whether it is not sure which of this one and the best is faster: their ratio is inside the simulator's margin."""
    known, ratio = margins.read(plan.cluster_name), estimate.iteration_time / plan.best.iteration_time
    return known is not None and max(ratio, 1 / ratio) < known.ratio.factor


def takeaway_lines(plan: TrainingPlan) -> list[str]:
    """The three takeaways, step by step."""
    chosen_by, cluster = plan.takeaways, plan.cluster
    per_node = cluster.gpus_per_node
    largest = max(t for t in tensor_sizes(plan.job, per_node) if t <= per_node)
    lines = [
        f"Takeaway 1: tensor parallelism up to the {per_node} GPUs of a node"
        + (f" (here to t={largest}, the largest that is legal)" if largest < per_node else "")
        + ", then pipeline parallelism"
    ]
    tries = ", ".join(f"t={s.t} p={s.p} {s.memory_bytes / GB:.1f} GB" for s in chosen_by.sizes[-5:])
    more = f"{len(chosen_by.sizes) - 5} smaller, then " if len(chosen_by.sizes) > 5 else ""
    tried = f"(tried, least memory: {more}{tries})"
    room = f"{cluster.usable_memory / GB:.1f} GB"
    if chosen_by.chosen is None:
        return [*lines, f"Takeaway 2: none of the sizes M = t*p fits in {room} {tried}"]
    parallel = chosen_by.chosen.config.parallel
    lines.append(
        f"Takeaway 2: the smallest M = t*p that fits in {room}: M={parallel.t * parallel.p}, so d={parallel.d} {tried}"
    )
    times = ", ".join(f"b={e.config.parallel.b} {e.iteration_time:.3f} s" for e in chosen_by.microbatches)
    lines.append(f"Takeaway 3: the best microbatch size of those that fit, with v=1 and recomputation: {times}")
    return lines


def count_line(plan: TrainingPlan) -> str:
    """What became of every legal configuration."""
    search = plan.search
    text = (
        f"of {search.legal:,} legal layouts {search.too_large:,} were looked at and do not fit in "
        f"{plan.cluster.usable_memory / GB:.1f} GB"
    )
    if search.too_long:
        text += f", {search.too_long:,} have schedules too long to execute (not ranked)"
    if search.discarded:
        text += (
            f", {search.discarded:,} cannot be faster than {search.complete_to_s:.3f} s, so not among the best, "
            "checked by lower bounds of their times"
        )
    return f"{text}, {len(search.ranked):,} were simulated"


def compared(plan: TrainingPlan) -> dict[str, Estimate]:
    """What the best is explained against: the second of the ranking, and the marked configurations."""
    of_paper, second = marked(plan), dict(zip(("rank 2",), plan.search.ranked[1:2], strict=False))
    known = {estimate.config for estimate in of_paper.values()}
    return {name: estimate for name, estimate in second.items() if estimate.config not in known} | of_paper


def comparison_lines(plan: TrainingPlan) -> list[str]:
    """For each of `compared`, how far it is from the best, and what makes the difference."""
    return [line for name, estimate in compared(plan).items() for line in _comparison(plan, name, estimate)]


def brief_lines(plan: TrainingPlan) -> list[str]:
    """What a terminal shows of the plan below its ranking; `note_lines` and `comparison_lines` have all of it."""
    best = plan.best
    second = plan.search.ranked[1].config if len(plan.search.ranked) > 1 else None
    of_paper = []
    for name, estimate in compared(plan).items():
        which = f" ({techniques(estimate.config.parallel)})" if estimate.config == second else ""
        of_paper.append(f"{name}{which}: {_distance(plan, estimate)}")
    room = f"{best.peak_memory / GB:.1f} of {plan.cluster.usable_memory / GB:.1f} GB on the fullest GPU"
    without = [] if plan.takeaways.chosen else takeaway_lines(plan)[-1:]
    return [f"rank 1: {sizes(best.config.parallel)}; {room}", *of_paper, *without, count_line(plan)]


def sizes(parallel: ParallelConfig) -> str:
    """The sizes that a plan chooses, as text."""
    told = ", ".join(filter(None, (techniques(parallel), parallel.pipeline_layout)))
    return ", ".join(f"{name}={getattr(parallel, name)}" for name in SIZES) + f" ({told})"


def _said(value: object) -> str:
    """A field's value in a sentence; no layout means even stages."""
    return "even" if value == "" else as_typed(value)


def _distance(plan: TrainingPlan, estimate: Estimate) -> str:
    """How far a configuration is from rank 1, whether the simulator is sure, and what makes most of it."""
    if estimate.config == plan.best.config:
        return "it is the best"
    unsure = ", of which the simulator is not sure" if undecided(plan, estimate) else ""
    return f"{place(plan, estimate)}{unsure}; mostly {_mostly(plan, estimate)}"


def _mostly(plan: TrainingPlan, estimate: Estimate) -> str:
    sign = 1 if estimate.iteration_time >= plan.best.iteration_time else -1
    differences = time_differences(estimate, plan.best, plan.cluster)
    return argmax({use: sign * seconds for use, seconds in differences.items()})


def _comparison(plan: TrainingPlan, name: str, estimate: Estimate) -> list[str]:
    best = plan.best
    if estimate.config == best.config:
        return [f"{name}: {_distance(plan, estimate)}"]
    here, there = estimate.config.parallel, best.config.parallel
    changes = [
        f"{field}={_said(getattr(here, field))} instead of {_said(getattr(there, field))}"
        for field in (*PARAMETERS, *OTHERS)
        if getattr(here, field) != getattr(there, field)
    ]
    more = estimate.iteration_time - best.iteration_time
    uses = list(time_differences(estimate, best, plan.cluster).items())
    parts = [f"{use} {seconds:+.3f}" for use, seconds in uses[:SHOWN_USES] if abs(seconds) >= 0.0005]
    rest = more - sum(seconds for _, seconds in uses[: len(parts)])
    parts += [f"all else {rest:+.3f}"] if abs(rest) >= 0.0005 else []
    links = [
        f"{label} {estimate.traffic[link] / GB:.1f} against {best.traffic[link] / GB:.1f}"
        for link, label in LINKS.items()
    ]
    return [
        f"{name}: {_distance(plan, estimate)}: {', '.join(changes)}",
        f"  time: {more:+.3f} s, of it {', '.join(parts)}",
        f"  memory: {estimate.peak_memory / GB:.1f} against {best.peak_memory / GB:.1f} GB; GPUs idle "
        f"{estimate.idle_fraction:.1%} against {best.idle_fraction:.1%} of the time; GB sent by a GPU: "
        + ", ".join(links),
    ]


def untried_line(plan: TrainingPlan) -> str:
    """What the search does not try, and what each of it would give."""
    return untried.sentence(plan.untried, plan.techniques)


def note_lines(plan: TrainingPlan) -> list[str]:
    """What to know when reading the numbers: of this plan, then of every one."""
    notes = [
        *own_notes(plan),
        "a GPU's time and bytes; recomputed is the whole layer (full), its attention core (selective), some of its "
        "modules or nothing; SP: sequence parallelism; sdpa: fused attention; ZeRO-1: a sharded optimizer, -2: "
        "gradients, too, -3: weights, too; model teraFLOP/s count no recomputed pass, and MFU is their share of a "
        f"GPU's {plan.cluster.peak_flops / 1e12:.0f}",
        risk_lines(plan)[0],
    ]
    known = margins.read(plan.cluster_name)
    if margins.brief(known) in notes:
        notes += margins.lines(known)
    if known and known.memory and plan.papers_best and plan.best.config != plan.papers_best.config:
        notes.append(
            "these margins come from runs with the paper's techniques; what came after them has been scored less"
        )
    return notes


def own_notes(plan: TrainingPlan) -> list[str]:
    """What this plan leaves out or takes for granted, how sure its numbers are, and what a whole run is made of."""
    known, program = margins.read(plan.cluster_name), margins.program_named(plan.cluster)
    line = margins.program_line(plan.cluster_name, program, [bool(plan.job.model.experts)])
    added = [name for name in untried.DISPATCH if name in plan.switched_on]
    notes = [
        *([f"the program is taken to have {' and '.join(added)} (--forbid {','.join(added)})"] if added else []),
        *not_modelled(plan),
        *(run_cost.lines(plan.further["run"], plan.run) if plan.run else ()),
        *risk_lines(plan)[1:],
        line or margins.brief(known),
    ]
    if not line and known and known.of(ITERATION.name, plan.best.config.to_plain()) is None:
        what = "experts" if plan.best.config.model.experts else f"context parallelism on {plan.cluster_name}"
        notes.append(f"the best has no interval: how far runs with {what} are off is not known well enough")
    notes += may_not_fit(plan)
    if near := sum(undecided(plan, estimate) for estimate in plan.search.ranked[1:]):
        notes.append(
            f"{near} others that were simulated are so near to the best that the simulator is not sure which is faster"
        )
    if plan.paper:
        paper = plan.paper.estimate
        printed = f"the paper ({plan.paper.where}) ran {sizes(paper.config.parallel)} and prints "
        printed += f"{plan.paper.throughput_per_gpu / 1e12:.0f} teraFLOP/s per GPU by its own count (eq. 3); simulated "
        notes.append(
            printed + (f"{paper.throughput_per_gpu / 1e12:.1f}" if paper.fits else "it does not fit in memory")
        )
    return notes


def not_modelled(plan: TrainingPlan) -> list[str]:
    """What of the model is not, and what its FLOPs count, if it is not what is computed."""
    said = [f"not modelled of {plan.name}: {plan.not_modelled}"] if plan.not_modelled else []
    return said + [LORA_FLOPS] * bool(plan.best.config.parallel.lora_rank)


def may_not_fit(plan: TrainingPlan) -> list[str]:
    """A line if, within the margin of memory, rank 1 may not fit; else none."""
    doubt = margins.doubt_of_memory(plan.best, plan.cluster)
    return [f"whether rank 1 fits is {doubt}"] if doubt else []


def doubts(plan: TrainingPlan) -> list[str]:
    """What the shortest answer may not leave out: what makes rank 1 another than the fastest, or less sure."""
    return [*not_modelled(plan), *risk_lines(plan)[1:], *may_not_fit(plan)]


def risk_lines(plan: TrainingPlan) -> list[str]:
    """How memory decides the ranking."""
    room = f"{plan.headroom:.0%} of the {plan.cluster.usable_memory / GB:.1f} GB to fill free"
    lines = [
        f"ranked first is what leaves {room}; of times within {NEAR_TIE:.0%} of the fastest, what leaves more tenths "
        "of it free comes first"
    ]
    if plan.is_tight(plan.best):
        lines.append(f"nothing that fits leaves {room}: every one is tight; try more GPUs")
        return lines
    fastest = min(plan.search.ranked, key=order)
    if slower(fastest, plan.best) < -NEAR_TIE:
        lines.append(
            f"the fastest, {-slower(fastest, plan.best):.1%} faster than rank 1, is tight, as it leaves less than "
            f"{plan.headroom:.0%} of the memory free: {sizes(fastest.config.parallel)}, "
            f"{fastest.peak_memory / GB:.1f} GB; --headroom 0 ranks it with others"
        )
    return lines
