"""The paired timing gate behind `reproduce check`: is head slower than base, decided live on a noisy machine?

    procedure   from pairs of times to verdicts: statistic, randomisation test, margins, looks, Holm (pure numpy)
    session     the order of things: pairs, rounds, the guard, looks, redone pairs, the budget
    guard       the canary, and what a disturbed machine is
    launcher    fresh processes of both sides, and what they answer
    workload    the script that they run: the benchmarks themselves, against the tree that is measured
    trees       commits as folders, and their environments
    run         a check from start to end, and the self-test: identical code, and an injected slow-down
    report      a session as Markdown, JSON and a record

Nothing is ever compared with a stored time: base and head run in one session, in pairs. A launch of a side is three
fresh processes, which measure in turn with those of the other side, a tenth of a second each, on the same core.
"""
