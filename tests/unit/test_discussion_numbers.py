"""What a discussion computes from numbers keeps the rows behind them."""

from gemmrepro.paper.discussion.live import UNKNOWN, Live, outcome

ERRORS = [
    Live("1.2 u", 1.2, "row-a"),
    Live("5.6 u", 5.6, "row-b"),
    Live("ratio 2", 2.0, "row-b", rows=("row-b", "row-c")),
]


def test_what_a_comparison_comes_to_leads_to_every_row_compared():
    found = outcome(12, ERRORS, "errors no larger than DGEMM's")
    assert (found.text, found.link, found.rows) == ("12", "row-a", ("row-a", "row-b", "row-c"))
    assert found.known and 'data-from="row-a row-b row-c"' in found.__html__()
    assert not outcome(12, [*ERRORS, Live("1 u", 1.0, "row-d", stale=True)], "").known


def test_nothing_compared_is_not_measured():
    assert outcome(0, [UNKNOWN], "") == UNKNOWN
    assert outcome(0, [], "") == UNKNOWN
