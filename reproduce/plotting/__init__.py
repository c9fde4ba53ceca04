"""Figures drawn again from what is on disk: `plot` is the command, `benchmark_figures` draws benchmarks' records."""
