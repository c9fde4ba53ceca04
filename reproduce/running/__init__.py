"""Running an artifact: points in, a Record out. Nothing here draws or prints.

runner       evaluates points or reuses them, judges the claims, writes the files
fidelities   the fidelities there are
evaluator    what evaluates points, whatever the fidelity
simulated, derived, emulated, measured   one fidelity each
side_by_side work in forked processes, as many as there are cores
gpu_session  the steps of `reproduce bench gpu`
"""
