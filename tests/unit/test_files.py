import pytest

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.errors import UserError


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    write_atomic(tmp_path / "a", "old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a", float("nan"))
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "a", 5)
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("text", ["{", "\xff", '{"a": 1', None], ids=["open", "no UTF-8", "cut short", "missing"])
def test_a_corrupt_or_missing_file_is_named_with_its_remedy(tmp_path, text):
    if text:
        (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    said = r"the build record .*a\.json is (corrupt|missing).*; run the build rule again\."
    with pytest.raises(UserError, match=said):
        read_json(tmp_path / "a.json", "the build record", "run the build rule again")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_document_that_is_nested_too_deeply_raises_and_does_not_crash(opening):
    with pytest.raises(RecursionError):
        schemas.parse_yaml(opening * 100_000)
