"""What an experiment is: artifacts, their points, quantities and claims, and the published numbers.

artifact      a figure or table, complete in itself
told          artifacts and claims told as data (`fig_bubble.toml`, `claims.toml`)
sweep         its points, at every scale, and their plain parameters
quantities    how metrics are shown, and of what their margins are made
results       the results of a run, as claims read them
claims        what claims are, and the rules that their bounds come from
judging       judging them; how far results are from the paper
margins       how sure simulated results are
predictions   what ran in real time against what was predicted for it
fidelity      the table of fidelities
papers        what a paper is: its folder, and what `paper.toml` says
catalog       which artifacts there are, of all papers
published     the papers' numbers (`published.json`)
"""
