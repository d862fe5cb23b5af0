"""Tuning: every combination of constants that a tunable allows is compiled, judged and timed on a GPU."""
