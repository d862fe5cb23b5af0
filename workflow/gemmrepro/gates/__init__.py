"""Gates: no kernel is timed before its machine code and its results are checked.

`static` and `numeric` are the two gates, `combined` merges them, `stage` writes the result. `operations` has the gate
of each operation and its key; `gate` the interface, guard bands and comparison, `bounds` those of rounding errors;
`gemm` (`gemm_cases`), `scaled`, `epilogue`, `copies`, `vectors`, `pointwise`, `ceilings` are the gates of operations.
"""
