"""The benchmarks, a module each, whose `points(setup)` measures and yields the points of the benchmark's record.

Each rank of a benchmark runs its module's `measure_here`. The benchmarks that `reproduce calibrate` uses also have
plain functions: `gemm.measure`, `memory.copy`, `memory.kernel_gap`, `p2p.measure` and `collectives.measure`.
`benchmarks.harness.benchmark_list` has the names, titles and columns of all benchmarks.
"""
