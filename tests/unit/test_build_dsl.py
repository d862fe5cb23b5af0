"""Kernels of the Python DSL: what is asked of it, what becomes of its PTX; every compiler for real in the container."""

import json
import re
from dataclasses import replace

import pytest
from records import changed
from support import ROOT, in_cuda13

from gemmrepro import registry
from gemmrepro.build import cute_dsl, cutile
from gemmrepro.build.key import build_key
from gemmrepro.errors import UserError
from gemmrepro.operations import Shape
from gemmrepro.registry import Launch, TensorMap
from gemmrepro.registry.keys import compiled

PORT = registry.kernel("cute.dsl_three_stages")
WITH_MAPS = registry.kernel("cute.dsl_hopper")
COMPILER = cute_dsl.CuteDsl()
VERSIONS = {"nvidia-cutlass-dsl": "4.8.1"}


def test_parameters_follow_the_arguments_and_the_types():
    kernel = changed(PORT, arguments=("a", "b", "c", "m", "alpha"), dtype_in="fp16", dtype_out="fp32")
    assert cute_dsl.parameter_types(kernel) == [
        *(("a", "Float16*"), ("b", "Float16*"), ("c", "Float32*")),
        *(("m", "Int32"), ("alpha", "Float32")),
    ]
    with pytest.raises(UserError, match="argument 'x' has no counterpart"):
        cute_dsl.parameter_types(PORT.with_call(arguments=("x",)))


def test_a_tensor_map_is_known_by_its_elements_and_its_box():
    types = dict(cute_dsl.parameter_types(WITH_MAPS))
    assert types == {
        **{"map:a": "BFloat16[128x64]", "map:b": "BFloat16[128x64]", "map:c": "BFloat16[16x64]"},
        **{"m": "Int32", "n": "Int32", "k": "Int32"},
    }
    maps = {**WITH_MAPS.call.tensor_maps, "a": TensorMap((128, 32), swizzle=64)}
    with pytest.raises(UserError, match="the tensor map of a has a swizzle of 64 bytes"):
        cute_dsl.parameter_types(WITH_MAPS.with_call(tensor_maps=maps))
    smaller = WITH_MAPS.with_call(tensor_maps={**WITH_MAPS.call.tensor_maps, "a": TensorMap((64, 64))})
    assert build_key(smaller, "13.4", VERSIONS) != build_key(WITH_MAPS, "13.4", VERSIONS)
    assert compiled(smaller) != compiled(WITH_MAPS)


def test_a_block_that_depends_on_the_problem_is_refused():
    def launch(shape: Shape) -> Launch:
        return Launch(grid=(1, 1, 1), block=(128 if shape.n < 1000 else 256, 1, 1))

    with pytest.raises(UserError, match="compiled for one block shape, but the launch in its record has 2"):
        COMPILER.flags(replace(PORT, launch=launch))


PYTHON = [
    (cute_dsl, cute_dsl.CuteDsl, PORT, cute_dsl.compile_ptx),
    (cutile, cutile.CuTile, registry.kernel("cutile.matmul_bf16"), cutile.compile_cubins),
]
"""Compilers of Python: module, class, a kernel, and what compiles it."""


@pytest.mark.parametrize(("module", "maker", "kernel", "compile"), PYTHON, ids=["cute_dsl", "cutile"])
def test_a_missing_compiler_and_a_refused_source_are_told(tmp_path, monkeypatch, module, maker, kernel, compile):
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module_of_this_name\n")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="for sm_90:") as refused:
        compile(replace(kernel, source=str(broken)), ["90"], 1, tmp_path / "out")
    said = str(refused.value)
    assert "ModuleNotFoundError" in said and ("Correct broken.py" in said) == (module is cute_dsl)
    with pytest.raises(UserError, match=rf"gone\.py of {kernel.id} is missing"):
        compile(replace(kernel, source="gone.py"), ["90"], 1, tmp_path)
    monkeypatch.setattr(module, "PACKAGES", ("no-such-package-of-this-name",))
    with pytest.raises(UserError, match=r"no-such-package-of-this-name, which is not installed; run Snakemake with"):
        maker().packages(kernel)


@pytest.mark.containers
@pytest.mark.parametrize(
    ("kernel_id", "archs", "opcode", "least"),
    [
        ("ladder.naive", "90,80", "FFMA", 16),
        (PORT.id, "80,90", "HMMA.16816.F32.BF16", 128),
        ("cutile.k_major_fp8_e4m3", "89,90", "QGMMA.64x64x32.F32.E4M3.E4M3", 4),
    ],
)
def test_a_kernel_builds_the_same_twice_and_names_no_path(default_run, tmp_path, kernel_id, archs, opcode, least):
    made = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        answer = in_cuda13(
            tmp_path,
            *("python3", "-m", "gemmrepro", "build", "--kernels", f"{kernel_id}={archs}", "--toolkit", "cuda13"),
            *("--threads", "2", "--out", str(folder)),
        )
        assert answer.returncode == 0, answer.stdout
        made.append({path.suffix: path.read_bytes() for path in folder.iterdir()})
    assert made[0] == made[1]
    assert str(ROOT).encode() not in made[0][".fatbin"] and b"/tmp" not in made[0][".fatbin"]
    record, kernel = json.loads(made[0][".json"]), registry.kernel(kernel_id)
    assert record.get("compiler", "nvcc") == kernel.code.compiler
    assert bool(record.get("packages")) == (kernel.code.compiler != "nvcc")
    assert set(record["archs"]) == {f"sm_{arch}" for arch in archs.split(",")} - record.get("refused", {}).keys()
    for refusal in kernel.promises.refusals:
        assert re.search(refusal.message, record["refused"]["sm_89"])
    for arch in record["archs"].values():
        assert sum(arch["instructions"].values()) == arch["instruction_total"]
        assert arch["spill_store_bytes"] == arch["spill_load_bytes"] == 0
        assert arch["instructions"][opcode] >= least
