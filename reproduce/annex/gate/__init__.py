"""The paired timing gate behind `reproduce gate`: is head slower than base, decided live on a noisy machine?

procedure   from pairs of times to verdicts: statistic, randomisation test, margins, looks, Holm (pure numpy)
session     what is measured when: pairs, rounds, the guard, looks, redone rounds, the budget
guard       the canary, and how it tells that a machine is disturbed
project     what a project has measured: `[tool.ptdp.gate]` of its pyproject.toml
trees       commits as folders, and their environments
launcher    starts fresh processes of both sides and hears their answers
workload    the script that these processes run: it times the steps of a workload, in either tree
counts      what a step does, for that script
run         a check from start to end; no time is ever compared with a stored one
trials      the gate tried on identical code, and on code that a patch slows down
report      a session as Markdown, JSON and a record
"""
