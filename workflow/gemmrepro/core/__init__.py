"""Helpers that know nothing of GPUs or kernels; every other package builds on them.

- `paths`, `names`: folders of the repository, and constants that several stages share.
- `files`, `schemas`, `tables`, `journal`: atomic files, schema checks, CSV text, and resumable measurements.
- `dtypes`, `arrays`, `draws`: element types, and arrays of NumPy or CuPy.
- `text`, `cpu_info`, `provenance`, `loading`: formatting, the CPU's name, versions, import by path.
- `dependencies`, `trees`: which code a stage runs, and a hash of it.
"""
