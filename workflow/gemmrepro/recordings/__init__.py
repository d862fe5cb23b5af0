"""Recordings: read and checked, brought into the results, merged, compared, bundled, accepted and made."""
