"""Gates: no kernel is timed before its machine code and its results are checked.

- `static`, `numeric`: the two gates. `combined` merges them, and `stage` writes the result.
- `operations`: the gate of each operation, the key that a numerical verdict is filed under, what it takes and allows.
- `gate`: the interface, guard bands, comparison by elements; `bounds` of rounding errors.
- `gemm` (cases in `gemm_cases`), `scaled`, `epilogue`, `copies`, `vectors`, `pointwise`, `ceilings`: the gates.
"""
