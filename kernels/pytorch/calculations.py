"""What the article's printed listings compute, without any measurement."""

from __future__ import annotations

from gemmrepro.judge.metrics.calculated import Calculated, Inputs


def printed_milliseconds(given: Inputs) -> Calculated:
    """What the listing prints, "msec.", for a pass of `options.milliseconds`: seconds of time.time() over 1000."""
    milliseconds = given.option("milliseconds")
    shown = milliseconds / 1000 / 1000
    return Calculated(shown, f"a pass of {milliseconds:g} ms is {milliseconds / 1000:g} s, and {shown:g} over 1000")
