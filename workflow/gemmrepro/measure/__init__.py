"""Times kernels on the GPU: in turn with their baselines (a sweep), sustained, and in bursts.

- `sweep` is the stage: `plan` lists the points, `prepare` loads what is timed and opens the journal, `rounds` and
  `passes` time it, `results` writes the files. `workspace` holds operands and judges results.
- `regimes`: when a GPU counts as hot, steady or rested, and one block of either regime.
- `columns`, `derived`, `rows`: the columns of the tables, how a row follows from samples, and how later stages read it.
- `recording`: reads and marks recorded files; `gemmrepro.recordings` checks them.
- `profiler`: hardware counters through CUPTI. `just_in_time`: cuTile compiled just in time against ahead of time.
"""
