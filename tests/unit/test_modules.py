from gemmrepro.files import ROOT
from gemmrepro.modules import closure


def test_closure_holds_what_a_stage_imports_and_all_of_it_exists():
    files = closure("verdicts")
    assert "workflow/gemmrepro/verdicts.py" in files
    assert "workflow/gemmrepro/claims.py" in files
    assert "workflow/gemmrepro/errors.py" in files
    assert all((ROOT / name).is_file() for name in files)


def test_an_edit_of_the_report_reruns_no_build():
    assert "workflow/gemmrepro/report.py" not in closure("build")
    assert "workflow/gemmrepro/sweep.py" not in closure("build")
