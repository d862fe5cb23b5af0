"""Builds kernels: source in; fat binary, disassembly and build record out.

- `stage`, `compile`, `cache`: the command, one kernel compiled with one toolkit, and finished builds.
- `nvcc`, `cute_dsl` (with `cute_dsl_trace`) and `cutile` (with `cutile_export`): the compilers.
- `toolkit`, `listings`, `sass`: the CUDA tools and parsers of their output.
- `record`, `key`: the build record, and the hash that measurements are filed under.
"""
