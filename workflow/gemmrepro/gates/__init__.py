"""Gates: no kernel is timed before its machine code and its results are checked.

- `static`, `numeric`: the two gates. `combined` merges them, and `stage` writes the result.
- `operations` maps each operation to its `gate.Gate`: `gemm` (cases in `gemm_cases`), `copies`, `vectors`,
  `pointwise`, `ceilings`.
- `compare`, `bounds`, `guarded`: element-wise comparison, error bounds, guard bands around arrays.
- `keys`: the hash that a numerical verdict is filed under.
"""
