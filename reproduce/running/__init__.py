"""Running an artifact: points in, a Record out. Nothing here prints.

runner       evaluates points or reuses them, judges the claims, writes the files
fidelities   what evaluates points, whatever the fidelity, and which fidelities there are
simulated, derived, emulated, measured   one fidelity each
side_by_side work in forked processes, as many as there are cores
gpu_session  the steps of `reproduce bench gpu`
"""
