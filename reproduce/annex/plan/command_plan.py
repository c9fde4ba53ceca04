"""`reproduce plan`: how to train a model on n GPUs: the paper's takeaways against the best by simulation."""

import sys
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduce.annex import part
from reproduce.commands import options
from reproduce.planning.cells import SET_FIELDS, TECHNIQUES
from reproduce.planning.models import find, main_names
from results.records import atomic_write_bytes
from results.records.documents import print_document
from results.records.errors import DONE, UsageError

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster
    from reproduce.annex.plan.gpu_counts import Limits, OnGpus
    from reproduce.planning.plan import TrainingPlan

WIDTH = 120
_MODELS = ", ".join(main_names())
_TECHNIQUES = "\n".join(f"  {name}: {what}" for name, what in TECHNIQUES.items())
FIELDS = SET_FIELDS
HELP = f"""The model is one of the paper's, by its parameter count, or a later one:
{_MODELS};
also by its name on Hugging Face's hub, or the path of a config.json;
or a GPT of your own: --layers --hidden --heads [--seq --vocab]. For a model of Table 1, --gpus and --batch
may be left out: then they are the table's, and the paper's own configuration is ranked with the rest.

First the paper's takeaways: (1) tensor parallelism up to the GPUs of a node, then pipeline
parallelism; (2) the smallest model-parallel size M = t*p that fits in memory, then data parallelism;
(3) the best microbatch size. Then the best of all legal configurations with p*t*c*d equal to the GPUs
given that fit in memory, by simulated time: p, t, d, v, b, what is recomputed, and of these:
{_TECHNIQUES}
With experts the program is taken to have deduplicated_dispatch and overlapped_exchange, if it is one of today.
--allow adds FP8 and other switches of the program, --forbid takes away. What cannot be among the best (its
least possible time is too long) is not simulated; how many is said.

What leaves less memory free than --headroom is marked tight, and comes after all that leaves more. Of times
within 2% of the fastest, what leaves more tenths of the memory free comes first.

An iteration is simulated; --tokens asks for the whole run, derived from it. Exit code 2 if no data-parallel
size divides the batch, 9 if nothing fits, 0 if something does, tight or not.

examples:
  reproduce plan --model 175b --gpus 1024 --batch 1536
  reproduce plan --model 145.6b --top 20
  reproduce plan --model llama-3-8b --gpus 64 --batch 128
  reproduce plan --model meta-llama/Llama-3.1-70B --gpus 512 --batch 4M --cluster h100 --tokens 1T --price 2.5
  reproduce plan --model deepseek-v3 --gpus 2048 --batch 15360 --cluster h800 --allow blockwise --forbid zero3
  reproduce plan --model llama-3-70b --gpus 64..1024 --batch 4M --cluster h100 --tokens 1T --deadline 60d --plot d.png
  reproduce plan --layers 48 --hidden 8192 --heads 64 --gpus 512 --batch 1536 --json

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce plan`."""
    parser.add_argument("--model", metavar="NAME", help="a model by name, such as 175b, llama-3-70b, or a config.json")
    sizes = (("layers", "l", "layers"), ("hidden", "h", "hidden size"), ("heads", "a", "attention heads"),
             ("seq", "s", "sequence length in tokens"), ("vocab", "V", "vocabulary size"))  # fmt: skip
    for size, letter, meaning in sizes:
        parser.add_argument(f"--{size}", type=int, metavar=letter, help=f"{meaning} of a model of your own")
    parser.add_argument(
        "--gpus", metavar="n", help="GPUs, all of which are used: n = p*t*c*d; the best on each of 64,96 or 64..1024"
    )
    parser.add_argument("--deadline", metavar="30d", help="the fewest GPUs with which a run takes no longer (h, d, w)")
    parser.add_argument("--budget", metavar="2M", help="the same, and cost no more USD, at --price")
    parser.add_argument(
        "--plot", type=options.path_to_write, metavar="FILE", help="draw days and MFU over several numbers of GPUs"
    )
    parser.add_argument("--batch", metavar="B", help="global batch size: sequences, or tokens as 4M (4 x 1024 x 1024)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"a field of the model, or of every layout: {', '.join(SET_FIELDS)}; repeatable",
    )
    options.add_cluster(parser)
    options.add(parser, "program")
    parser.add_argument(
        "--headroom",
        type=float,
        metavar="PERCENT",
        help="of a GPU's memory to fill, what should stay free (default 10)",
    )
    for option, text in (
        (
            "allow",
            "what to search besides: FP8 recipes (fp8: all), offload_layers, offload_optimizer, switches",
        ),
        ("forbid", "what not to search, or to switch off"),
    ):
        parser.add_argument(f"--{option}", type=options.names, default=(), metavar="NAME,NAME", help=text)
    parser.add_argument("--top", type=int, default=3, metavar="N", help="how many of the best to show (default 3)")
    options.add_run(parser)
    options.add(parser, "columns", "json", "results")


def run(parsed: Namespace) -> int:
    """Answer the request: print the plan, write it, return the exit code.

    Raises `UsageError` for a request that cannot be, `NothingSelectedError` if nothing fits in memory.
    """
    from reproduce.annex.plan import gpu_counts, plan_record
    from reproduce.output.columns import chosen
    from reproduce.planning import plan_text
    from reproduce.planning.plan import as_trained, make_plan, nothing, request
    from reproduce.planning.search import HEADROOM, search
    from reproduce.planning.untried import may_use
    from reproduce.running.simulated import open_cluster
    from results.records.provenance import collect

    started = datetime.now(UTC)
    run = options.run_of(parsed)
    limits = gpu_counts.Limits.of(parsed.deadline, parsed.budget, run)
    numbers = gpu_counts.counts(parsed.gpus or gpu_counts.ANY) if parsed.gpus or limits != gpu_counts.Limits() else []
    several = len(numbers) > 1 or limits != gpu_counts.Limits()
    if several and parsed.sensitivity:
        raise UsageError("--sensitivity with several numbers of GPUs, or a limit; needs one number; try --gpus 64")
    parsed.gpus = numbers[0] if numbers else None
    parsed.set = options.key_values(parsed.set, "--set lora_rank=16")
    chosen(plan_text.RANKING, parsed.columns)  # what can be wrong, before the search
    cluster, reference = open_cluster(parsed.cluster, parsed.trainer)
    name, job = request(vars(parsed))
    options.say_where_python_runs(parsed.quiet)
    headroom = HEADROOM if parsed.headroom is None else parsed.headroom / 100
    if several:
        cluster, techniques = may_use(cluster, job.model, parsed.allow, parsed.forbid)
        job = as_trained(job, cluster)
        with _status(parsed.quiet) as on_step:
            found = gpu_counts.on_each(job, cluster, numbers, techniques, headroom, run, on_step)
        _print_counts(parsed, gpu_counts.document(name, job, cluster, found, limits), found, cluster, limits)
        if not any(each.best for each in found):
            largest = replace(job, n=numbers[-1])
            raise nothing(largest, cluster, techniques, search(largest, cluster, 1, techniques))
        return DONE
    if parsed.plot:
        raise UsageError("--plot with one number of GPUs; needs several; try --gpus 64..1024")
    with _status(parsed.quiet) as on_step:
        choice = {"allow": parsed.allow, "forbid": parsed.forbid}
        plan = make_plan(name, job, cluster, reference.name, parsed.top, on_step, headroom, **choice)
    plan = replace(
        plan,
        run=run,
        sensitivity=parsed.sensitivity,
        not_modelled=find(parsed.model).unmodelled(job.model.seq) if parsed.model else "",
    )
    provenance = collect(parsed.command, started, cluster=reference, code_digest=plan_record.code_digest())
    folder = plan_record.write(plan, provenance, parsed.results, parsed.columns)
    if parsed.json:
        print_document("plan", 1, plan_record.document(plan, folder))
    else:
        _print(plan, folder, parsed.columns, parsed.quiet)
    return DONE


def _print_counts(
    parsed: Namespace, document: Mapping[str, Any], found: Sequence["OnGpus"], cluster: "Cluster", limits: "Limits"
) -> None:
    """Several numbers of GPUs: the table on a terminal or the document, and the figure if asked for."""
    from reproduce.annex.plan import gpu_counts
    from reproduce.output import theme
    from reproduce.output.tables import print_table
    from reproduce.output.terminal import console, shown_path, wrapped

    if parsed.json:
        print_document("plan-gpus", 1, document)
    else:
        out = console(WIDTH)
        title = f"The best on each number of GPUs, batch {document['batch']}, simulated on {cluster.name}"
        print_table(out, gpu_counts.table(found, cluster, limits), title)
        if said := gpu_counts.sentence(found, limits):
            wrapped(out, said)
    if parsed.plot:
        with theme.style():
            data = theme.figure_bytes(
                part("plot", "estimate_figure").draw_counts(document), parsed.plot.suffix[1:], "reproduce plan"
            )
        atomic_write_bytes(parsed.plot, data)
        if not parsed.json:
            print(shown_path(parsed.plot))


@contextmanager
def _status(quiet: bool) -> Iterator[Callable[[int], None]]:
    if quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from reproduce.output.terminal import moving_console

    with moving_console().status("plan") as status:
        yield lambda done: status.update(f"plan: {done} configurations simulated")


def _print(plan: "TrainingPlan", folder: Path, columns: Sequence[str], quiet: bool) -> None:
    """The plan on a terminal; with `quiet` the ranking, what else was asked for, and what makes it less sure."""
    from reproduce.annex.plan import plan_record
    from reproduce.output.tables import print_table
    from reproduce.output.terminal import console, files_line
    from reproduce.planning import plan_text

    out = console(WIDTH)
    out.print(plan_text.title(plan), style="bold")
    ranking = plan_text.ranking(plan, columns)
    title = f"Ranked by time and free memory, simulated on {plan.cluster_name}"
    print_table(out, ranking, title, "table.md")
    if not quiet:
        for line in (*plan_text.brief_lines(plan), plan_text.untried_line(plan)):
            out.print(_wrapped(line, out.width))
    for table, heading in plan_text.further_tables(plan):
        print_table(out, table, heading, "table.md")
    for line in plan_text.doubts(plan) if quiet else plan_text.own_notes(plan):
        out.print(_wrapped(line, out.width))
    if quiet:
        return
    out.print(files_line([folder / name for name in plan_record.FILES]), soft_wrap=True)
    out.print("table.md has the paper's heuristics step by step, memory by use, and what makes the differences")


def _wrapped(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 3)
    return textwrap.fill(line, width - 1, subsequent_indent=indent, break_long_words=False)
