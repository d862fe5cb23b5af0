"""Numbers in a discussion's tables say what they are."""

from gemmrepro.paper.discussion.names import named

HEAD = "<table><thead><tr><th>Kernel</th><th>n</th><th>A &amp; B</th><th>ratio</th><th>ratio</th></tr></thead><tbody>"


def test_a_number_is_named_by_its_column_and_row():
    row = '<tr><th>a <a href="#k">K</a></th><td>512</td><td><a href="#r1">3.5</a> <a href="#r2">4</a></td>'
    text = named(f'{HEAD}{row}<td><a href="#r3">1</a></td><td><a href="#r4">1</a></td></tr></tbody></table>')
    assert '<a href="#k">K</a>' in text
    assert '<a href="#r1" aria-label="3.5, A &amp; B, a K, 512">3.5</a>' in text
    assert 'aria-label="4, A &amp; B, a K, 512, number 2"' in text
    assert '"1, ratio, column 4, a K, 512"' in text and '"1, ratio, column 5, a K, 512"' in text


def test_what_has_a_name_or_no_table_stays():
    text = '<a href="#x">1</a><table><tbody><tr><td><a href="#y" aria-label="2, y">2</a></td></tr></tbody></table>'
    assert named(text) == text
