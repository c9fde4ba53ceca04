"""`reproduce plan` as JSON, and on disk: a record with its tables. Every number in them is simulated."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptdp_core.simulator import Estimate
from reproduce.experiment import margins
from reproduce.experiment.metrics import answers, of_every_point
from reproduce.output.tables import csv_text, markdown_table
from reproduce.planning import plan_text, run_cost, untried
from reproduce.planning.plan import TrainingPlan
from reproduce.planning.time_shares import time_differences
from reproduce.running import simulated
from reproduce.running.fidelities import sources_digest
from results.records import (
    PaperValue,
    PointResult,
    Provenance,
    Record,
    fingerprint,
    write_files,
    write_record,
)

FILES = ("record.json", "table.md", "table.csv")


def document(plan: TrainingPlan, folder: Path) -> dict[str, Any]:
    """The plan as `--json` prints it."""
    search = plan.search
    return {
        "origin": "simulated",
        "cluster": plan.cluster_name,
        "model": {"name": plan.name, **asdict(plan.job.model), "not_modelled": plan.not_modelled},
        "gpus": plan.job.n,
        "batch": plan.job.B,
        **({"set": dict(plan.job.fields)} if plan.job.fields else {}),
        "headroom": plan.headroom,
        "counts": {
            "legal": search.legal,
            "do_not_fit": search.too_large,
            "too_long_to_execute": search.too_long,
            "discarded_by_bound": search.discarded,
            "simulated": len(search.ranked),
        },
        # What was discarded takes longer; infinite, and so left out, if nothing was.
        **({"discarded_above_s": search.complete_to_s} if search.discarded else {}),
        "searched": list(plan.techniques),
        "software": [name for name, on in vars(plan.cluster.software).items() if on],
        "not_tried": untried.document(plan.untried),
        **plan.further,
        "takeaways": {
            "sizes_tried": [size._asdict() for size in plan.takeaways.sizes],
            "microbatches_tried": [entry(plan, e) for e in plan.takeaways.microbatches],
        },
        "configurations": [
            {"rank": rank, "which": name or None, **entry(plan, e)} for rank, e, name in plan_text.shown(plan)
        ],
        "comparisons": [
            {
                "which": name,
                "rank": search.rank(e.config),
                "slower_by": plan_text.slower(e, plan.best),
                "seconds_more": time_differences(e, plan.best, plan.cluster),
            }
            for name, e in plan_text.compared(plan).items()
        ],
        "folder": str(folder),
    }


def entry(plan: TrainingPlan, estimate: Estimate) -> dict[str, Any]:
    """A configuration and its numbers, as JSON."""
    values = {metric.name: metric.simulated(estimate, plan.cluster) for metric in answers()}
    told = [name for name in values if name != "sequences_per_s"]  # the batch is the same for all
    return {
        **{name: getattr(estimate.config.parallel, name) for name in plan_text.PARAMETERS},
        **{name: values[name] for name in told},
        **{name: getattr(estimate, name) for name in ("memory_bytes", "traffic", "phase_times")},
        "slower_by": plan_text.slower(estimate, plan.best),
        "free_memory": plan_text.free(plan, estimate),
        "tight": plan.is_tight(estimate),
        "intervals": margins.of_values(values, estimate, plan.cluster),
    }


def write(plan: TrainingPlan, provenance: Provenance, results: Path, columns: Sequence[str] = ()) -> Path:
    """Write record.json, table.md with these columns of the ranking, table.csv; their folder. Raises `StorageError`."""
    model = plan.job.model
    name = plan.name
    if name == "own":
        name = f"l{model.layers}-h{model.hidden}-a{model.heads}-s{model.seq}-V{model.vocab}"
    job = [f"{name}-n{plan.job.n}-B{plan.job.B}-{plan.cluster_name}", *plan_text.same(plan)]
    folder = results / "plan" / "-".join(job)
    record = to_record(plan, provenance)
    text = [f"# Plan: {plan_text.title(plan)}", ""]
    text += [f"- {line}" for line in (*plan_text.takeaway_lines(plan), plan_text.count_line(plan))]
    text += ["", markdown_table(plan_text.ranking(plan, columns)), ""]
    text += [f"**{plan_text.untried_line(plan)}**", ""]
    text += [f"Simulated on {plan.cluster_name}. Memory of the fullest GPU:", ""]
    text += [markdown_table(plan_text.memory_table(plan)), ""]
    for table, heading in plan_text.further_tables(plan):
        text += [f"{heading}:", "", markdown_table(table), ""]
    text += [f"- {line.strip()}" for line in (*plan_text.comparison_lines(plan), *plan_text.note_lines(plan))]
    files = {"table.md": "\n".join(text) + "\n", "table.csv": csv_text(record)}
    write_files(folder, {name: content.encode() for name, content in files.items()})
    write_record(record, folder / "record.json")
    return folder


def to_record(plan: TrainingPlan, provenance: Provenance) -> Record:
    """The plan as a record: a point for each configuration shown, the lines as notes."""
    points = []
    cluster = provenance.cluster.digest if provenance.cluster else None
    for rank, estimate, name in plan_text.shown(plan):
        parameters = {"rank": rank, **estimate.config.to_plain()}
        paper: Mapping[str, PaperValue] = {}
        if plan.paper and estimate.config == plan.paper.estimate.config:
            paper = {"throughput_per_gpu": PaperValue(plan.paper.throughput_per_gpu, "FLOP/s", "table", quantum=1e12)}
        points.append(
            PointResult(
                key=f"rank_{rank}" if rank else name.replace(", ", "_and_").replace(" ", "_").replace("'", ""),
                series=name,
                label=plan_text.sizes(estimate.config.parallel),
                parameters=parameters,
                status="ok",
                reason=None,
                fingerprint=fingerprint({"parameters": parameters, "cluster": cluster, "code": provenance.code_digest}),
                metrics=simulated.simulated_metrics(estimate, plan.cluster, of_every_point(shown=answers()))
                | (run_cost.run_metrics(estimate, plan.cluster, plan.run) if plan.run else {}),
                paper=paper,
            )
        )
    if known := margins.read(plan.cluster_name):
        points = list(map(known.applied, points))
    lines = (
        *plan_text.takeaway_lines(plan),
        plan_text.count_line(plan),
        plan_text.untried_line(plan),
        *plan_text.comparison_lines(plan),
        *plan_text.note_lines(plan),
    )
    return Record(
        kind="comparison",
        id="plan",
        title=f"Plan: {plan_text.title(plan)}",
        paper=None,
        fidelity="simulated",
        scale=f"{plan.job.n} GPUs, batch {plan.job.B}",
        state="complete",
        provenance=provenance,
        points=tuple(points),
        notes=tuple("\n".join(lines).replace("\n  ", "; ").splitlines()),
    )


def code_digest() -> str:
    """A digest of the sources that a plan's numbers come from."""
    return sources_digest(simulated.SOURCES, None, simulated)
