"""The margins of simulated numbers, from the simulator's errors on values that did not set its parameters.

A margin is the quantile of |log(simulated/measured)|: of n errors the one of rank ceil(0.9 (n + 1)), so that another
error of the same kind is smaller with a probability of at least 90%; of fewer than nine errors the largest. It is
tested by leaving out: the errors of each artifact (of memory: each study) against the quantile of all others.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil, exp, log
from pathlib import Path
from typing import Any

from pandas import DataFrame, Index, Series, concat

from ptdp_core.simulator import load_cluster, read_parameters, simulate
from reproduce.annex.accuracy import open_rows, refit
from reproduce.annex.accuracy.ledger import (
    CONTEXT,
    TODAY,
    Study,
    measured_over_predicted,
    published_kind_of_bytes,
    studies,
)
from reproduce.experiment import catalog
from reproduce.experiment.margins import signs
from reproduce.experiment.quantities import PEAK_MEMORY
from reproduce.running import runner, simulated

COVERAGE = 0.9
ENDS = ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2)
LEAST_ROWS = 20  # of a program in a class, for an interval of its own
# Clusters that share the margin of `ledger.TODAY`'s runs on them, and those whose machines differ, though they have one
# name, with the number in whose range they do: it widens the margin.
OTHERS = ("a100-80", "a100-80-4hca", "h100")
DIFFERING = {"b200": "gemm_plateau"}
MEMORY_TABLES = "zerobubble/table_4"  # Tables 4, 6, 7 and 12
# Errors are columns of |log(simulated/measured)|, whose index is the artifact or study that is left out as a whole.


def half_width(errors: Sequence[float] | Series) -> tuple[float, float]:
    """The margin as a logarithm, and its nominal coverage."""
    n = len(errors)
    rank = min(n, ceil(COVERAGE * (n + 1)))
    return sorted(errors)[rank - 1], min(COVERAGE, rank / (n + 1))


def tested(errors: Series) -> float | None:
    """The share of errors inside the margin made from the other groups; None for a single group."""
    groups = errors.index.unique()
    if len(groups) < 2:
        return None
    inside = sum((errors[[group]] <= half_width(errors.drop(group))[0]).sum() for group in groups)
    return int(inside) / len(errors)


def margins(published: DataFrame, refitted: Mapping[str, Any]) -> dict[str, Any]:
    """The margins of a refit's cluster as plain data: what `reproduce.experiment.margins` reads."""
    left_out = refit.left_out(refitted, published)
    values = published.assign(log=(1 + left_out).map(log))
    rates = [metric for metric, sign in signs("throughput").items() if sign > 0]
    values = values[values.counted & values.metric.isin(rates) & left_out.notna()].set_index("artifact")
    with_zero3 = values.config.map(lambda config: config.parallel.data_parallel == "zero3")
    usual, zero3 = values[~with_zero3], values[with_zero3]
    return {
        "about": "Factors inside which the simulator is sure: reproduce accuracy --refit; explained in docs/margins.md",
        "cluster": refitted["cluster"],
        "digest": refitted["digest"],
        "margins": {
            "throughput": _margin(usual.log.abs(), "throughputs of the paper, each artifact left out of the fit"),
            "ratio": _margin(_ratios(usual), "ratios of two of them: neighbours in a series, series at one x"),
            "zero3": _margin(zero3.log.abs(), "throughputs of Table 2 with ZeRO-3, the table left out of the fit"),
            "memory": _margin(memory_errors(), "memory in BigScience's, Zero Bubble's, SimuMax's runs, never fitted"),
        },
        "others": _of_others(todays_errors(OTHERS)) | _of_differing(),
        "programs": programs(),
        "classes": classes(),
    }


def programs() -> dict[str, Any]:
    """By cluster with margins: whose runs were scored, and how far off runs are whose program is not known.

    `switches` are those of the programs that were scored; `low` and `high` the ends between which nine in ten measured
    times lie over those simulated with the program of the cluster's file, whatever theirs was.
    """
    found = {}
    for clusters in (("selene",), OTHERS, *((cluster,) for cluster in DIFFERING)):
        known = [study for study in studies() if study.named and study.cluster in clusters]
        ratios = concat([_as_the_clusters_program(study) for study in known])
        names, own = _names(known), clusters == ("selene",)
        switches = [sorted(name for name, on in vars(study.software).items() if on) for study in known]
        of_programs = {
            "scored": "the paper's Megatron-LM" if own else names,
            "switches": [] if own else sorted(map(list, {*map(tuple, switches)})),
            "runs": f"{len(ratios)} iterations of {names if own else 'theirs'}",
            "low": float(ratios.quantile(0.05)),
            "high": float(ratios.quantile(0.95)),
        }
        for cluster in clusters:
            found[cluster] = of_programs
    return found


def _names(known: Sequence[Study]) -> str:
    """The programs of studies: 'a, b and c'."""
    return _listed(dict.fromkeys(study.named for study in known))


def _as_the_clusters_program(study: Study) -> Series:
    """A study's measured times over those that its configurations take with the program of the cluster's file."""
    return Series(
        [
            point.iteration_time / simulate(point.config, load_cluster(point.cluster)).iteration_time
            for point in study.points.itertuples()
        ]
    )


def classes() -> dict[str, Any]:
    """Where measured times of the open rows lie over simulated ones, by class, as plain data.

    Of a program with `LEAST_ROWS` of a class its own errors make the interval, of another it is the widest of theirs.
    Where none is named the rows are simulated as their cluster's program, and it reaches as far as nine in ten of any
    program's ratios. Each is tested on the rows of a program with those of the others; of experts, whose rows are of
    one program, on those of a model with those of all others.
    """
    named, unnamed = (open_rows.scored(named) for named in (True, False))
    found: dict[str, Any] = {"clusters": sorted(named.cluster[named.error.notna()].unique())}
    for kind in (open_rows.DENSE, open_rows.EXPERTS):
        rows, others = (every[(every.kind == kind) & every.error.notna()] for every in (named, unnamed))
        apart = "program" if kind == open_rows.DENSE else "model"
        ratios, spread = (Series(map(log, 1 + of.error.astype(float)), index=Index(of[apart])) for of in (rows, others))
        by_program = {
            name: _of_ratios(ratios[(rows.program == name).array], ratios, f"open runs of {name}")
            for name, count in rows.program.value_counts().sort_index().items()
            if count >= LEAST_ROWS
        }
        ends = _ends(spread)
        inside = [spread[[group]].between(*_ends(spread.drop(group))).sum() for group in spread.index.unique()]
        found[kind] = {
            "programs": by_program,
            "other": _of_ratios(ratios, ratios, f"open runs of {_listed(by_program)}"),
            "unnamed": {
                **dict(zip(("low", "high"), map(exp, ends), strict=True)),
                "coverage": COVERAGE,
                "n": len(spread),
                "tested": int(sum(inside)) / len(spread),
                "source": f"open runs of {_listed(by_program)}, simulated as their clusters' programs",
            },
        }
    return found


def _of_ratios(own: Series, ratios: Series, source: str) -> dict[str, Any]:
    """The interval that ratios make, as logarithms, and the share of them inside that of the other groups' ratios."""
    width, groups = _half_width(own), own.index.unique()
    inside = sum((own[[group]].abs() <= _half_width(ratios.drop(group))).sum() for group in groups)
    counted = {"coverage": half_width(own.abs())[1], "n": len(own), "tested": int(inside) / len(own)}
    return {"low": exp(-width), "high": exp(width), **counted, "source": source}


def _by_program(values: Series) -> list[Series]:
    """Values apart by program, of those with `LEAST_ROWS`; all together where they are known by model."""
    if values.index.name != "program":
        return [values]
    counts = values.index.value_counts(sort=False)
    return [values[[program]] for program in counts[counts >= LEAST_ROWS].index]


def _half_width(ratios: Series) -> float:
    return max(half_width(each.abs())[0] for each in _by_program(ratios))


def _ends(ratios: Series) -> tuple[float, float]:
    """The lowest and the highest end of nine in ten of each program's ratios."""
    low, high = ([float(each.quantile(end)) for each in _by_program(ratios)] for end in ENDS)
    return min(low), max(high)


def _listed(names: Iterable[str]) -> str:
    """'a, b and c'."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _margin(errors: Series, source: str) -> dict[str, Any]:
    width, coverage = half_width(errors)
    return {"factor": exp(width), "coverage": coverage, "n": len(errors), "tested": tested(errors), "source": source}


def todays_errors(clusters: Collection[str]) -> Series:
    """The errors of iteration times of public runs on these clusters, none of which set a parameter, by study."""
    return _errors_of({study.id for study in studies() if study.id in TODAY and study.cluster in clusters})


def _errors_of(ids: Collection[str]) -> Series:
    ratios = {study.id: measured_over_predicted(study) for study in studies() if study.id in ids}
    return concat(ratios).droplevel(1).map(log).abs()


def widest(errors: Series) -> float:
    """The margin of a source that is not among these, as a logarithm: the widest of theirs."""
    return max(half_width(errors[[source]])[0] for source in errors.index.unique())


def tested_by_source(errors: Series) -> float:
    """The share of errors inside the margin made from the other sources."""
    inside = sum((errors[[source]] <= widest(errors.drop(source))).sum() for source in errors.index.unique())
    return int(inside) / len(errors)


def _of_others(errors: Series) -> dict[str, Any]:
    """The margins of the clusters of which other programs' runs are known."""
    source = f"iterations of {errors.index.nunique()} public sources on {', '.join(OTHERS)}, each source left out"
    return dict.fromkeys(OTHERS, _of_speed("h100", widest(errors), errors, tested_by_source(errors), source))


def _of_differing() -> dict[str, Any]:
    """The margins of the clusters whose machines differ: what `OTHERS` have, and the range of one number.

    They are made without the cluster's own runs, which test them.
    """
    others, known = widest(todays_errors(OTHERS)), {}
    for cluster, name in DIFFERING.items():
        number, errors = read_parameters(cluster)[name], todays_errors([cluster])
        width = others + log(max(number.value / number.low, number.high / number.value))
        source = f"the worst source on {', '.join(OTHERS)}, and the range of {name}; tested with runs of one machine"
        known[cluster] = _of_speed(cluster, width, errors, float((errors <= width).mean()), source)
    return known


def _of_speed(cluster: str, width: float, errors: Series, tested: float, source: str) -> dict[str, Any]:
    """The margins of a cluster of which times and throughputs alone are known, as a ratio's, and no memory.

    Runs with context parallelism on `cluster`, which made none of them, test theirs.
    """
    speed = {"factor": exp(width), "coverage": COVERAGE, "n": len(errors), "tested": tested, "source": source}
    with_context = _errors_of([CONTEXT[cluster]])
    inside = {"n": len(with_context), "tested": float((with_context <= width).mean())}
    context = speed | inside | {"source": f"as without it; tested with runs of {CONTEXT[cluster]}"}
    return {"throughput": speed, "ratio": speed, "zero3": speed, "memory": None, "context": context}


def _ratios(values: DataFrame) -> Series:
    """The errors of ratios of two values of an artifact, which is what claims compare.

    The two values are neighbours in a series, or two series' values at the same x.
    """
    points = values[["log"]].assign(
        series=[point.series for point in values.point], x=[point.label for point in values.point]
    )
    neighbours = points.groupby(["artifact", "series"]).log.diff()
    pairs = points.merge(points.reset_index(), on=["artifact", "x"]).set_index("artifact")
    pairs = pairs[pairs.series_x < pairs.series_y]
    return concat([neighbours, pairs.log_x - pairs.log_y]).abs().dropna()


def memory_errors() -> Series:
    """The errors of a GPU's memory: of the studies that publish it, and of Zero Bubble's tables."""
    errors: list[tuple[str, Any, float]] = [
        (study.id, published_kind_of_bytes(point, load_cluster(point.cluster)), published)
        for study in studies()
        if not study.again
        for point in study.points.itertuples()
        if (published := point.published_bytes) is not None
    ]
    artifact, name = catalog.load(MEMORY_TABLES), PEAK_MEMORY.name
    evaluator = simulated.make(runner.plan(artifact, Path(), "simulated"), debug=False)
    errors += [
        (MEMORY_TABLES, evaluator.evaluate(point).metrics[name].value, float(point.paper[name].value))
        for point in artifact.points(artifact.scales[0])
        if name in point.paper
    ]
    ids, ours, published = zip(*errors, strict=True)
    return Series(map(log, ours), index=ids).sub([log(value) for value in published]).abs()
