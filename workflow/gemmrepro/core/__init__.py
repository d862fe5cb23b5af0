"""Helpers that know nothing of kernels; every other package builds on them.

- `paths`, `names`: folders of the repository, and constants that several stages share.
- `files`, `schemas`, `journal`: files written whole and locked, checked documents, resumable measurements.
- `dtypes`, `draws`: element types, and arrays of NumPy or CuPy. `architectures`: which GPU runs which code.
- `text`, `machine`: numbers and units in words; commit, versions and CPU.
- `dependencies`, `trees`: which code a stage runs, and a hash of it.
"""
