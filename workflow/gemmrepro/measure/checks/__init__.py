"""Checks of a recording against itself: what its numbers must satisfy whoever wrote them."""
