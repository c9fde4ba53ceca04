"""The options of `reproduce calibrate` and its help, without what measuring imports."""

import argparse
from pathlib import Path

HELP = """Measures this machine with microbenchmarks (GEMMs and the other operators of transformer layers, copies, the
optimizer step, collectives and messages between ranks) and writes a cluster file, which every --cluster takes. On a CPU
each core is a device, and all are busy while one is measured. No time of a training step goes into the file, so that

  reproduce accuracy --cluster my.toml

tests it: against the measured runs in --results, and against those that --check makes here, of tiny GPTs.

What one node cannot show, the file takes from --base and says so: the rates between nodes (or --hca-bandwidth, what one
device's messages reach to another node, in B/s: the other three keep their ratios to it), ZeRO-3's interference, and
with one device everything between devices. Run it on one node of a cluster to predict the whole of it.

--json prints one object: out, device, host, ranks, quiet, parameters[] (name, value, unit, low, high, source,
set_with), errors{} (mean relative error of the model against the timings, by kind), and with --check the record's path.

examples:
  reproduce calibrate --out my.toml --check
  reproduce simulate points.json --cluster my.toml

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `reproduce calibrate`, but for --results and --debug."""
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.toml", help="the cluster file to write")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="what to measure (default: GPUs if there are any)")
    parser.add_argument("--base", default="selene", metavar="CLUSTER", help="where the other numbers are from (selene)")
    parser.add_argument("--hca-bandwidth", type=float, metavar="B/s", help="one device's rate to another node")
    parser.add_argument("--check", action="store_true", help="also train tiny GPTs, and compare with the predictions")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout, and nothing else there")
