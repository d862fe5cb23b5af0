import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT, alone, copy_sources, snakemake

from gemmrepro.build.toolkit import find_toolkit
from gemmrepro.core import names
from gemmrepro.errors import UserError
from gemmrepro.host.containers import container_environment, make_caches


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for the default run comes first, so that another worker (`-n`) does the rest meanwhile."""
    waiting = {"default_run", "toolkit"}
    items.sort(key=lambda item: not (item.get_closest_marker("containers") or waiting & set(item.fixturenames)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, a line per reason: pytest has one per place, 100 of them without a GPU."""
    skipped: list[pytest.TestReport] = terminalreporter.getreports("skipped")
    reasons = Counter(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"SKIPPED [{count}] {reason.removeprefix('Skipped: ')}")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources alone, for tests that only plan."""
    copy = tmp_path_factory.mktemp("tree") / "gemmrepro"
    copy_sources(copy)
    return copy


@pytest.fixture(scope="session")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The README's main command, for real and in place: containers, binaries, gates, rows, verdicts, report."""
    if shutil.which("apptainer") is None:
        pytest.fail(
            "apptainer is not on PATH; run the tests as `envs/run pytest`, or leave these out: -m 'not containers'"
        )
    with alone("default_run", tmp_path_factory) as shared:
        ended = shared / "default_run.json"
        if not ended.exists():
            # What a host tells its own compilers must not reach those of the images.
            # And an update of Debian's must not end a test.
            snapshot = os.environ.get("GEMMREPRO_SNAPSHOT", "newest")
            told = {"CC": "/nowhere/gcc", "NVCC_APPEND_FLAGS": "--nowhere", "GEMMREPRO_SNAPSHOT": snapshot}
            run = snakemake("--use-singularity", **told)
            ended.write_text(json.dumps([run.returncode, run.stdout]))
        code, said = json.loads(ended.read_text())
    assert code == 0, said[-8000:]
    return said


@pytest.fixture(scope="session")
def toolkit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a real CUDA toolkit on PATH: the machine's own, else the one in the CUDA 13 image."""
    for name in names.TOOLKITS:
        try:
            yield find_toolkit(name).name
            return
        except UserError:
            continue
    request.getfixturevalue("default_run")
    environment = container_environment(os.environ)
    make_caches(environment)
    # Set for these programs alone: a workflow that another test runs in a copy of the checkout has folders of its own.
    variables = shlex.join(f"{name}={value}" for name, value in environment.items())
    tools = tmp_path_factory.mktemp("tools")
    root, image = shlex.quote(str(ROOT)), shlex.quote(str(ROOT / "resources/images/cuda13.sif"))
    for tool in ("nvcc", "cuobjdump", "nvdisasm"):
        (tools / tool).write_text(f'#!/bin/sh\nexec env {variables} apptainer exec --bind {root} {image} {tool} "$@"\n')
        (tools / tool).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        yield find_toolkit("cuda13").name


@pytest.fixture(scope="session")
def validators() -> Path:
    """The programs of envs/requirements/validators.txt, which `.ci/run` installs in .envs/validators."""
    folder = ROOT / ".envs" / "validators"
    lock, installed = ROOT / "envs/requirements/validators.txt", folder / "lock.txt"
    if not installed.is_file() or installed.read_bytes() != lock.read_bytes():
        pytest.skip("envs/requirements/validators.txt is not installed in .envs/validators; .ci/run installs it")
    return folder / "bin"
