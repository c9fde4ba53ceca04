"""What the timing gate measures of this project, which is a client of `reproduce.annex.gate` like any other.

`workloads.py` names the workloads as plain data, `adapter.py` runs them with this tree's classes, `slowed.patch` slows
them down for trials of the gate: every estimate computes memory and traffic twice, and every training step runs the
layers' forward passes twice. `[tool.ptdp.gate]` of pyproject.toml points here.
"""
