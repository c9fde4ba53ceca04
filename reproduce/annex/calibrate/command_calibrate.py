"""`reproduce calibrate`: measure this machine, write a cluster file, and say how well it describes the machine."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.annex import part
from reproduce.commands import options
from results.records.documents import print_document
from results.records.errors import DONE, UsageError
from results.records.units import with_unit

if TYPE_CHECKING:
    from reproduce.annex.calibrate.fit import Calibration
    from reproduce.annex.calibrate.timings import Timings

TRAINING_S = 12.0  # seconds of the training runs of one number of ranks, about
HELP = """Measures this machine with microbenchmarks (GEMMs and the other operators of transformer layers, copies, the
optimizer step, collectives and messages between ranks) and writes a cluster file, which every --cluster takes. On a CPU
each core is a device, and all are busy while one is measured. No time of a training step goes into the file, so that

  reproduce accuracy --cluster my.toml

tests it: against the measured runs in --results, and against those that --check makes here, of tiny GPTs.

What one node cannot show, the file takes from --base and says so: the rates between nodes (others: --network, when you
simulate), ZeRO-3's interference, and with one device everything between devices. Run it on one node of a cluster to
predict the whole of it.

With tables that were measured before, by whatever means, nothing is measured here: --gemm (CSV: m, n, k, perhaps
batch, and seconds, ms, us or tflops), --attention (CSV: batch, seq, heads, head_size, pass, and a time), --collectives
(what nccl-tests prints of all_reduce_perf, or, for sequence parallelism, of all_gather_perf and reduce_scatter_perf, in
two files). The file then says how the machine differs from --base. Collectives over several nodes alone make a network
file, for --network of any command that simulates.

examples:
  reproduce calibrate --out my.toml --check
  reproduce calibrate --out my.toml --base b200 --gemm gemms.csv --collectives all_reduce_8.txt
  reproduce simulate points.json --cluster my.toml
  reproduce calibrate --out fabric.toml --base h100 --collectives all_reduce_16.txt
  reproduce simulate points.json --cluster h100 --network fabric.toml

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce calibrate`."""
    parser.add_argument(
        "--out", type=options.path_to_write, required=True, metavar="FILE.toml", help="the cluster file to write"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="what to measure (default: GPUs if there are any)")
    parser.add_argument("--base", default="selene", metavar="CLUSTER", help="where the other numbers are from (selene)")
    parser.add_argument("--gemm", type=options.path_of, metavar="CSV", help="times of matrix products, by shape")
    parser.add_argument("--attention", type=options.path_of, metavar="CSV", help="times of fused attention")
    parser.add_argument(
        *("--collectives", "--collective"),
        type=options.path_of,
        action="extend",
        nargs="+",
        default=[],
        metavar="FILE",
        help="what nccl-tests prints on 2, 4 or 8 GPUs of a node, or on several nodes, in one or several files",
    )
    parser.add_argument("--check", action="store_true", help="also train tiny GPTs, and compare with the predictions")
    options.add(parser, "json", "results")


def run(parsed: Namespace) -> int:
    """Measure, fit, write, and with --check train and compare; what can be wrong is found before any work."""
    from reproduce.annex.calibrate import write
    from reproduce.annex.calibrate.fit import fit
    from reproduce.running.runner import require_folder
    from reproduce.running.simulated import open_cluster

    write.check_target(parsed.out, parsed.force)
    open_cluster(parsed.base)
    if parsed.gemm or parsed.attention or parsed.collectives:
        return _from_tables(parsed)
    from reproduce.annex.calibrate import checking_runs, measure  # with torch, whose import takes seconds

    if parsed.check:
        require_folder(parsed.results / checking_runs.ID / "measured")
    device = part("bench", "benchmark_run").choose_device(parsed.device)
    ranks = measure.devices(device)
    started = datetime.now(UTC)
    timings, quiet = measure.measured(device, ranks, quiet=parsed.quiet)
    calibration = fit(timings, parsed.base)
    header = write.header(timings, calibration, started, parsed.command, quiet)
    write.write(parsed.out, write.text(calibration, parsed.out.stem, timings.host, header))
    document = write.document(parsed.out, timings, calibration, quiet)
    if not parsed.json:
        _print(parsed.out, timings, calibration, quiet, parsed.program)
    if parsed.check:
        document["record"] = str(_train(parsed, device, ranks))
    if parsed.json:
        print_document("calibrate", 1, document)
    return DONE


def _from_tables(parsed: Namespace) -> int:
    """Fit the numbers that tables decide, write the file, and say what each was and is."""
    from reproduce.annex.calibrate import measured_tables, write
    from reproduce.annex.calibrate.write import fit_errors

    if given := [name for name in ("check", "device") if getattr(parsed, name)]:
        raise UsageError(f"--{given[0]} has no part in a calibration from tables, which measures nothing; leave it out")
    found = measured_tables.fit_tables(parsed.base, parsed.gemm, parsed.attention, parsed.collectives)
    nodes = parsed.base if found.is_network else ""
    write.write(parsed.out, measured_tables.text(found, parsed.out.stem, " ".join(parsed.command)), nodes)
    if parsed.json:
        print_document("calibrate-tables", 1, measured_tables.document(parsed.out, found))
        return DONE
    from tabulate import tabulate

    rows = [
        (name, with_unit(found.before[name].value, each.unit), with_unit(each.value, each.unit), each.source)
        for name, each in found.after.items()
    ]
    print(tabulate(rows, ("number", parsed.base, parsed.out.stem, "from"), tablefmt="plain", disable_numparse=True))
    print(f"\nthe model against the tables, mean difference: {fit_errors(found.errors)}")
    for note in found.notes:
        print(note)
    how = f"--cluster {nodes} --network {parsed.out}" if nodes else f"--cluster {parsed.out}"
    print(f"file: {parsed.out}\n\nnext: {parsed.program} simulate points.json {how}")
    return DONE


def _train(parsed: Namespace, device: str, ranks: int) -> Path:
    """Train tiny GPTs and compare them with the predictions; the file of their record."""
    from ptdp_core.launch.local import RankError
    from reproduce.annex.calibrate import checking_runs
    from reproduce.annex.calibrate.measure import failed
    from reproduce.output.terminal import progress
    from reproduce.running.runner import RECORD
    from results.records import write_record

    path: Path = parsed.results / checking_runs.ID / "measured" / RECORD
    sizes = checking_runs.sizes(device, ranks)
    with progress("training", len(sizes), [TRAINING_S] * len(sizes), quiet=parsed.quiet) as done:
        try:
            record = checking_runs.run(device, ranks, parsed.command, done)
        except RankError as error:
            raise failed(error) from None
        write_record(record, path)
    if not parsed.json:
        print()
        assessment = part("accuracy", "measured").assess([path], str(parsed.out))
        part("accuracy", "command_accuracy").print_parts(part("accuracy", "measured_text").parts(assessment))
    return path


def _print(out: Path, timings: "Timings", calibration: "Calibration", quiet: bool, program: str) -> None:
    from tabulate import tabulate

    from reproduce.annex.calibrate.write import NOT_QUIET, fit_errors

    what = f"{timings.ranks} {'GPUs' if timings.on_gpu else 'cores as devices'}, {timings.dtype}"
    print(f"{timings.host}: {what}\n")
    rows = [
        (p.name, with_unit(p.value, p.unit), f"{with_unit(p.low, p.unit)} to {with_unit(p.high, p.unit)}", p.set_with)
        for p in calibration.parameters.values()
    ]
    print(tabulate(rows, ("number", "value", "plausible range", "from"), tablefmt="plain", disable_numparse=True))
    print(f"\nthe model against its own timings, mean difference: {fit_errors(calibration.errors)}")
    if not quiet:
        print(NOT_QUIET)
    print(f"file: {out}\n\nnext: {program} accuracy --cluster {out}")
