"""The benchmarks, one module each: `points(setup)` measures and yields the points of its record.

Those that `reproduce calibrate` builds on have plain functions too: `gemm.measure`, `memory.copy`, `memory.kernel_gap`,
`p2p.measure` and `collectives.measure`. Names, titles and columns are in `benchmarks.harness.registry`.
"""
