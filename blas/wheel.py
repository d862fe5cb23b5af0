"""Pack gemmrepro_blas into a wheel that needs no checkout: its modules, the launch table, and the built binaries.

    PYTHONPATH=workflow:blas python blas/wheel.py --build results/build/cuda13 --out results/wheel

The table is exported from the records (`gemmrepro_blas.export`), so what decides is kept once, in the tree. Equal
inputs give equal bytes. It is written here because the suite's environment has no build backend that makes wheels, and
one would still need the table, the binaries, their keys in the metadata and the platform's tag from this file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemmrepro import registry
from gemmrepro.build.record import read_build
from gemmrepro.core.paths import ROOT
from gemmrepro.errors import UserError as CheckoutError
from gemmrepro_blas import UserError, export

HERE = Path(__file__).resolve().parent
PACKAGE = "gemmrepro_blas"
LEFT_OUT = ("export.py",)
"""Modules that read the checkout."""
TAG = "py3-none-manylinux_2_28_x86_64"
"""The binaries' host is the driver's: x86-64 Linux."""


def packed(build: Path) -> dict[str, Any]:
    """The launch table with version, and each binary's build key and toolkit.

    Raises:
        UserError: a binary is of other sources than today's.
    """
    table, version = export.table(), project()["version"]
    built = {}
    for name in table["kernels"]:
        recorded, today = export.keys(name, build)
        if recorded != today:
            raise UserError(f"{name} in {build} was built from other sources than today's; run the target build.")
        record = read_build(registry.kernel(name), build.parent, build.name)
        built[name] = {"build_key": recorded, "toolkit": record.toolkit_version}
    return {"version": version, "built": built, **table}


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    return found


def metadata(table: dict[str, Any]) -> str:
    """Core metadata 2.1, with the build keys after the README."""
    about = project()
    lines = [
        *("Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {about['version']}"),
        *(f"Summary: {about['description']}", f"Requires-Python: {about['requires-python']}", "License: MIT"),
        *(f"Requires-Dist: {need}" for need in about["dependencies"]),
        *(f"Provides-Extra: {extra}" for extra in about["optional-dependencies"]),
        *(
            f'Requires-Dist: {need}; extra == "{extra}"'
            for extra, needs in about["optional-dependencies"].items()
            for need in needs
        ),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
        "## Binaries",
        "",
        *(f"- {name}: build key {one['build_key']}, CUDA {one['toolkit']}" for name, one in table["built"].items()),
    ]
    return "\n".join(lines) + "\n"


def files(build: Path, table: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Name and content of what the wheel holds, but for RECORD."""
    for path in sorted((HERE / PACKAGE).glob("*.py")):
        if path.name not in LEFT_OUT:
            yield f"{PACKAGE}/{path.name}", path.read_bytes()
    yield f"{PACKAGE}/table.json", json.dumps(table, indent=1).encode()
    for name in table["kernels"]:
        yield f"{PACKAGE}/{name}.fatbin", (build / f"{name}.fatbin").read_bytes()
    info = _info(table)
    yield f"{info}/METADATA", metadata(table).encode()
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: {PACKAGE}\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    yield f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes()


def _info(table: dict[str, Any]) -> str:
    return f"{PACKAGE}-{table['version']}.dist-info"


def write(build: Path, out: Path) -> Path:
    """The wheel in the folder `out`. Raises UserError as `packed`."""
    table = packed(build)
    out.mkdir(parents=True, exist_ok=True)
    made, record = out / f"{PACKAGE}-{table['version']}-{TAG}.whl", []
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files(build, table):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
            _add(wheel, name, content)
        name = f"{_info(table)}/RECORD"
        _add(wheel, name, "\n".join([*record, f"{name},,", ""]).encode())
    return made


def _add(wheel: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    wheel.writestr(entry, content)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=Path, default=export.BUILT, help="folder of binaries and their records")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "wheel", help="folder of the wheel")
    arguments = parser.parse_args()
    try:
        print(write(arguments.build.resolve(), arguments.out))
    except (UserError, CheckoutError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
