"""Exact checks compare everything that is deterministic with a committed reference, at zero tolerance.

    reproduce gate exact [SECTION ...] [--accept] [--json]

- `comparison.py`: collects the sections, and compares them or makes them the reference
- `simulated.py`: times, FLOPs, bytes by link class and memory of the paper's points; the cluster's parameters
- `schedules.py`: tables of actions, lowered programs, messages, peak stash, bubble
- `growth.py`: how the lines that functions execute grow with the size of a problem, and the calls of an iteration
- `planner.py`: what a search looks at, and the calls that this takes
- `layout.py`: the layers and parameters of uneven stages
- `startup.py`: what commands import, wait for and start
- `page.py`: the files and sources of the page that `reproduce explore` writes
- `engine.py`, `dispatched.py`: tiny batches in real ranks: collectives, messages, bytes, stash, order, executed GEMMs
- `counts.py`, `step_profile.py`: operators, bytes, waits and calls of a training step, by the function that asks
- `watched.py`: what Python calls and executes, by the names of functions
- `resources.py`, `usage.py`: files, process groups and threads of a training run, by the function that uses them
- `probes.py`: processes of their own, which say what they do
- `mutations.py`: regressions that the checks must name
- `entries.py`: the data, sections of entries with quantities by kind; and what is simulated and trained, the rows of
  `simulated.toml` and `engine.toml`
- `reference.py`: the committed values, `results/reference/exact/<section>.json`
- `differences.py`, `wording.py`: what changed, grouped so that one cause is one difference

Every value is a whole number, a text, or a list of them by rank. Simulated times are whole nanoseconds and the bubble
whole parts per billion: from Python 3.12 on `sum()` rounds floats otherwise than before, and mathematical libraries
differ in the last bit, which moves an iteration by less than 0.01 ns. Everything else is exact.
"""
