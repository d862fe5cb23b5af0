"""Words for the sentences of verdicts: kernels by their titles, rates and toolkits by their names."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gemmrepro import registry
from gemmrepro.core import paths
from gemmrepro.core.text import format_number
from gemmrepro.gpu.baselines import BASELINES

_LIBRARIES = {"torch.eager": "eager PyTorch", "torchvision.resnet50": "ResNet50", "bias_gelu": "a pointwise kernel"}
_RATES = {
    "fp16_acc32": "fp16 with fp32 sums",
    "fp16_acc16": "fp16 with fp16 sums",
    "fp8_acc16": "fp8 with fp16 sums",
    "fp64_tensor": "fp64 tensor cores",
}
_TOOLKIT = re.compile(r"\bcuda(1\d)\b")
_ARCH = re.compile(r"\bsm_(\d+)(\d)[a-z]?\b")


def title(name: str) -> str:
    """A kernel's or library's name for readers: ``Warptiling (L7)``, ``cuBLAS``, ``torch.compile``."""
    return _titles(paths.KERNELS_DIR).get(name, name)


@cache
def _titles(_: Path) -> Mapping[str, str]:
    """Titles by id, of the kernels in a folder and of the libraries."""
    titles = dict(_LIBRARIES)
    titles.update((name, baseline.rung) for name, baseline in BASELINES.items())
    for kernel in registry.kernels():
        rung = f" ({kernel.rung})" if re.search(r"\d", kernel.rung) else ""
        titles[kernel.id] = kernel.title + rung
    return titles


@cache
def _names(folder: Path) -> re.Pattern[str]:
    longest_first = sorted([*_titles(folder), *_RATES], key=len, reverse=True)
    return re.compile(rf"(?<![\w./])(?:{'|'.join(map(re.escape, longest_first))})(?![\w])(?!\.\w)")


def in_words(text: str) -> str:
    """`text` with ids of kernels, baselines, rates, toolkits and architectures as words."""
    text = _names(paths.KERNELS_DIR).sub(lambda found: _RATES.get(found[0]) or title(found[0]), text)
    text = _ARCH.sub(r"compute capability \1.\2", _TOOLKIT.sub(r"CUDA \1", text))
    return text.replace("fp8_e", "e").replace("torch.compile.", "torch.compile, ")


def opcodes(pattern: str) -> str:
    """A regular expression of opcodes for readers: ``LDG.E….128``, ``HMMA (not 16816.F32)…``."""
    plain = pattern.replace(r"(\..*)?", "…").replace(r"(\.|$)", "").replace("\\", "").replace("$", "")
    plain = re.sub(r"\(\?!([^()]*)\)", r" (not \1)", plain).replace(".*", "…").replace("?", "")
    return re.sub(r"…+", "…", plain).replace("|", " or ").removesuffix("…")


def duration(microseconds: float) -> str:
    """A time in ``µs`` or ``ms``, with three digits."""
    if microseconds < 1000:
        return f"{format_number(microseconds)} µs"
    return f"{format_number(microseconds / 1000)} ms"


def sentence(text: str) -> str:
    """`text` beginning with a capital letter."""
    return text[:1].upper() + text[1:]
