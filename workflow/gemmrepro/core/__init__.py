"""Helpers that know nothing of kernels; every other package builds on them.

Folders and shared constants (`paths`, `names`); files written whole and locked, checked documents, resumable
measurements (`files`, `schemas`, `journal`); element types and arrays (`dtypes`, `draws`); `architectures`; numbers in
words (`text`); commit, versions and CPU (`machine`); hashes of the code a stage runs (`dependencies`, `trees`).
"""
