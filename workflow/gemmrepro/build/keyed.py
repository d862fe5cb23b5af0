"""Records of kernels that are not compiled: what was recorded of a binary is held against its build key, and needs no
machine code."""

from __future__ import annotations

from gemmrepro.build.compilers import compiler
from gemmrepro.build.key import build_key
from gemmrepro.build.record import Build
from gemmrepro.build.source_text import source_hash
from gemmrepro.build.toolkit import Toolkit, shown
from gemmrepro.registry import Kernel


def keyed(kernel: Kernel, toolkit: Toolkit) -> Build:
    """The record that compiling `kernel` would give, without machine code.

    Raises:
        UserError: a source, a header or a package is missing.
    """
    return Build(
        kernel=kernel.id,
        toolkit=toolkit.name,
        toolkit_version=toolkit.version,
        build_key=build_key(kernel, toolkit.version),
        flags=compiler(kernel).flags(kernel),
        sources={shown(path): source_hash(path) for path in (kernel.source_path, *kernel.header_paths)},
        entry=kernel.code.entry,
        advisories=(),
        archs={},
        variants={code.code.entry: {} for code in kernel.codes} if len(kernel.codes) > 1 else {},
        packages=compiler(kernel).packages(kernel),
        compiler=kernel.code.compiler,
    )
