"""What the tests on a GPU share: the open GPU, binaries built for it, and binaries of sources changed on purpose."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gpu_tools import ROOT, compiles, runs, stage

from gemmrepro import registry
from gemmrepro.build import key, nvcc
from gemmrepro.core.architectures import pick_arch
from gemmrepro.errors import UserError
from gemmrepro.gpu import device


@pytest.fixture(scope="session")
def session() -> device.Session:
    try:
        return device.open_gpu()
    except UserError as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(autouse=True)
def on_the_sessions_stream(session: device.Session) -> None:
    """CuPy's operations of a test are in order with its launches, whatever stream an earlier test left current."""
    session.stream.use()


@pytest.fixture(scope="session")
def toolkit() -> str:
    """The toolkit on PATH, cuda12 or cuda13."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    return "cuda" + re.search(r"release (\d+)\.", text)[1]


def current(kernel: registry.Kernel, folder: Path, session: device.Session) -> bool:
    """Whether `folder` holds `kernel` for this GPU, compiled from today's source by whatever version of its toolkit."""
    try:
        record = json.loads((folder / f"{kernel.id}.json").read_text())
    except (OSError, ValueError):
        return False
    fits = pick_arch(list(record["archs"]), session.gpu.compute_capability) is not None
    return fits and record["build_key"] == key.build_key(kernel, record["toolkit_version"], record.get("packages"))


@pytest.fixture(scope="session")
def built(session: device.Session, toolkit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder with the kernels that run here: the workflow's binaries where current, others made now.
    What takes a package that is not installed is left out, and its tests are skipped (`gpu_tools.load`)."""
    ready = ROOT / "results" / "build"
    wanted = [kernel for kernel in registry.kernels() if toolkit in kernel.platform.toolkits and runs(kernel, session)]
    outdated = [kernel for kernel in wanted if not current(kernel, ready / toolkit, session)]
    if not outdated:
        return ready
    missing = [kernel for kernel in outdated if compiles(kernel)]
    folder = tmp_path_factory.mktemp("build")
    (folder / toolkit).mkdir()
    for kernel in wanted:
        if kernel not in outdated:
            for kind in ("json", "fatbin"):
                shutil.copy(ready / toolkit / f"{kernel.id}.{kind}", folder / toolkit)
    number = session.gpu.arch.removeprefix("sm_")

    def make(kernel: registry.Kernel) -> str:
        options = ("--kernels", f"{kernel.id}={number}", "--toolkit", toolkit, "--out", folder / toolkit)
        answer = stage("build", *options)
        return answer.stderr if answer.returncode else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(make, missing) if text]
    assert not failures, "\n".join(failures)
    return folder


Sources = Mapping[str, tuple[registry.Kernel, str, str]]
"""By any name: a kernel's record, the text to compile, and the header that it replaces; "" for the source itself."""


@pytest.fixture(scope="session")
def compiled(toolkit: str, session: device.Session, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict]:
    """Compiles kernels from other texts of their sources, all at once; returns the fat binaries' paths by name."""

    def make(sources: Sources) -> dict[str, Path]:
        def one(kernel: registry.Kernel, text: str, header: str, folder: Path) -> Path:
            changed = folder / (header or Path(kernel.source).name)
            changed.parent.mkdir(exist_ok=True)
            changed.write_text(text)
            number = (kernel.platform.targets or (session.gpu.arch.removeprefix("sm_"),))[0]
            target = f"-gencode=arch=compute_{number},code=sm_{number}"
            # The changed header stands before the one that it replaces.
            headers = ["-I", str(folder), "-I", str(ROOT / "kernels")]
            includes = [str(include) for _, include in nvcc.header_packages(kernel).values()]
            headers += [word for include in includes for word in ("-isystem", include)]
            flags = (*nvcc.COMMON_FLAGS, *kernel.code.flags, *nvcc.defines(kernel))
            command = ["nvcc", *flags, target, *headers, "-o"]
            source = kernel.source_path if header else changed
            subprocess.run([*command, str(folder / "changed.fatbin"), str(source)], check=True)
            return folder / "changed.fatbin"

        folders = [tmp_path_factory.mktemp("changed") for _ in sources]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            paths = pool.map(lambda job: one(*job[0], job[1]), zip(sources.values(), folders, strict=True))
            return dict(zip(sources, paths, strict=True))

    return make
