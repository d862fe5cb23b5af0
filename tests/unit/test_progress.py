"""Progress of a long measurement, on a clock of the test's own."""

import pytest

from gemmrepro.core.progress import Progress, duration


def test_the_rest_lasts_as_long_a_piece_as_what_was_finished_since_the_start():
    now = [100.0]
    progress = Progress(total=120, done=20, clock=lambda: now[0])
    assert progress.left_seconds is None  # what was finished before says nothing of this run's speed
    now[0] += 32
    assert progress.step(10) == "[ 30/120, 5 min left]"
    assert progress.left_seconds == pytest.approx(288)
    now[0] += 30
    assert progress.step(90) == "[120/120, 0 s left]"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (89.4, "89 s"), (90, "2 min"), (3600, "60 min"), (7500, "2 h 05 min")]
)
def test_a_duration_is_written_for_a_reader(seconds, text):
    assert duration(seconds) == text
