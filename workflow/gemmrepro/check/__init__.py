"""Checks kernel families against the contract, without a GPU or a CUDA toolkit: ``python -m gemmrepro check``.

`stage` is the command; `kernel` has the checks of one record, `family` those of a family and its files; `sources`
parses sources.
"""
