"""Pipeline schedules compared, drawn, checked and searched for.

family      every schedule at one size: its time, memory and messages beside those of the others
search      a schedule by list scheduling, and how far from the best it can be
gradients   the engine's gradients under a schedule, beside those of one rank
ascii       a timeline for a terminal
"""
