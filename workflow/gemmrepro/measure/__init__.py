"""Times kernels on the GPU, or takes their rows from a recording.

- `sweep` is the stage: `prepare` opens the GPU and `plan` lists the points, `rounds` times them, `results` writes them.
  `workspace` holds operands, `binaries` loads kernels, `records` describes the journal.
- `recorded`, `recording`: rows of a committed recording, checked against today's binaries.
- `columns`, `rows`: the columns of the tables, and how later stages read them.
- `counters`, `profiler`: hardware counters through CUPTI.
- `just_in_time`, `compilations`, `compilation_check`: cuTile compiled just in time against ahead of time.
"""
