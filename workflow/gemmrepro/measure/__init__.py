"""Times kernels on the GPU: in turn with their baselines (a sweep), sustained, and in bursts.

`sweep` is the stage: `plan` lists the points, `prepare` loads what is timed, `rounds` and `passes` time it, `results`
writes the files and reads hardware counters; `workspace` holds operands and judges results. `regimes` says when a GPU
counts as hot, steady or rested; `columns`, `derived` and `rows` are the tables, `recording` the recorded files.
"""
