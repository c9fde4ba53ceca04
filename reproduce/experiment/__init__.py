"""What an experiment is: artifacts, their points, quantities and claims, and the published numbers.

artifact      the types: Artifact, Point, Quantity, Claim, Results
claims        judging claims on results; how far results are from the paper
fidelity      the table of fidelities: scales, modules, words
catalog       which artifacts there are
published     the paper's numbers (`published.json`)
predictions   what ran in real time against what was predicted for it
"""
