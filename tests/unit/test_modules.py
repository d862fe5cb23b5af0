from gemmrepro.core.dependencies import PACKAGE, closure, imports
from gemmrepro.core.paths import ROOT


def test_closure_holds_what_a_stage_imports_and_all_of_it_exists():
    files = closure("verdicts")
    assert "workflow/gemmrepro/verdicts.py" in files
    assert "workflow/gemmrepro/claims.py" in files
    assert "workflow/gemmrepro/errors.py" in files
    assert all((ROOT / name).is_file() for name in files)


def test_an_edit_of_the_report_reruns_no_build():
    assert "workflow/gemmrepro/report.py" not in closure("build")
    assert "workflow/gemmrepro/sweep.py" not in closure("build")


def test_no_two_modules_need_each_other():
    for path in sorted(PACKAGE.glob("*.py")):
        for name in imports(path):
            assert f"workflow/gemmrepro/{path.name}" not in closure(name), f"{path.stem} and {name} import each other"
