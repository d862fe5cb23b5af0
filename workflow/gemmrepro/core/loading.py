"""Imports Python files that belong to no package, such as those of kernel families."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load_module(name: str, path: Path) -> ModuleType:
    """Import the file at `path` as a new module, and enter it into sys.modules as `name`.

    Raises:
        ImportError: the path is not that of a Python file.
        Exception: any exception that the file raises.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file", path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
