"""Recordings: read and checked, brought into the results, merged, compared, bundled, accepted and made.

What is missing, corrupt or cannot be raises a UserError that names the first such place, and what to do. `build` is
the folder of build records, whose keys decide which rows are current.
"""
