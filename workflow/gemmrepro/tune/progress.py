"""What tuning reports while it runs."""

from __future__ import annotations

from gemmrepro.core.journal import sayer

say = sayer("tune")
