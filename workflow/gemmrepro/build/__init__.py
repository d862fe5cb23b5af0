"""Builds kernels: source in; fat binary, disassembly and build record out.

- `stage`, `compile`: the command, and one kernel compiled with one toolkit.
- `compilers` chooses among `nvcc`, `cute_dsl` (with `cute_dsl_trace`) and `cutile` (with `cutile_export`).
- `toolkit`, `fatbin`, `listings` (over `cubins`), `cuobjdump`, `sass`: the CUDA tools and parsers of their output.
- `record`, `key`: the build record, and the hash that measurements are filed under.
"""
