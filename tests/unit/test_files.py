import pytest

from gemmrepro.core import schemas
from gemmrepro.core.files import read_json, write_atomic, write_json
from gemmrepro.errors import UserError


def test_json_round_trip_is_stable(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": [1.5]})
    first = (tmp_path / "a.json").read_bytes()
    write_json(tmp_path / "a.json", {"a": [1.5], "b": 1})
    assert (tmp_path / "a.json").read_bytes() == first
    assert read_json(tmp_path / "a.json", "the test", "none") == {"a": [1.5], "b": 1}


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    write_atomic(tmp_path / "a", "old")
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a", float("nan"))
    with pytest.raises(TypeError):
        write_atomic(tmp_path / "a", 5)
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("text", ["{", "\xff", '{"a": 1'])
def test_a_corrupt_file_is_named_with_its_remedy(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"the build record .*a\.json is corrupt.*; run the build rule again\."):
        read_json(tmp_path / "a.json", "the build record", "run the build rule again")


def test_a_missing_file_is_named_with_its_remedy(tmp_path):
    with pytest.raises(UserError, match=r"is missing; run the build rule\."):
        read_json(tmp_path / "a.json", "the build record", "run the build rule")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_document_that_is_nested_too_deeply_raises_and_does_not_crash(opening):
    with pytest.raises(RecursionError):
        schemas.parse_yaml(opening * 100_000)
