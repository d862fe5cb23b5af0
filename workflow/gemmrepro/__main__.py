"""The one command line: ``python -m gemmrepro STAGE [options]``.

Each stage has a row here, and each option is declared once. A stage's module has a ``main`` that takes the parsed
options; it is imported when it is asked for, so that an image needs no library of another stage.
"""

import ast
import importlib
import json
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmrepro.core.paths import RECORDINGS, ROOT
from gemmrepro.errors import UserError, run_stage

STAGES: Mapping[str, tuple[str, str]] = {
    "check": ("check", "[family]"),
    "image": ("host.sif:image_step", "--env! --recipe! --sif! --lock!"),
    "build": ("build.stage", "--kernels! --toolkit! --threads --out! --cache"),
    "judge-numbers": (
        "gates.numeric:judge_step",
        "--kernels|--family --build --seeds --seed --out --out-dir --patience --processes --worker",
    ),
    "gates": ("gates.stage:gates_step", "--check|--kernels --build --numeric|--recorded --gpu --out"),
    "sweep": (
        "measure.sweep",
        "--family! --config! --build --gates --journal! --out! --regimes --kernels --budget --round --free",
    ),
    "own": ("measure.own", "--kernel! --config! --journal! --out! --patience --part"),
    "own-figures": ("figures.stage:own_step", "[results] --out!"),
    "experiments": (
        "experiments.run",
        "--family! --name --toolkits --build --gates --journal! --out! --config|--settings --budget",
    ),
    "recorded-rows": ("recordings.bring", "--families! --recorded! --build --out --regimes"),
    "recorded-experiments": ("recordings.bring:experiments_step", "--experiments! --recorded! --build --out!"),
    "just-in-time": ("measure.just_in_time", "--family! --build --out!"),
    "verdicts": ("judge.judging:verdicts_step", "--measure! --gates --build --families --experiments --regimes --out!"),
    "figures": ("figures.stage", "--family|--verdicts! --families --measure! --experiments --regimes --out! --figures"),
    "report": (
        "paper.page",
        "--verdicts! --measure! --gates --build --figures! --images! --experiments --regimes --gpus --recorded"
        " --own --config! --out!",
    ),
    "zip": ("paper.bundle:zip_step", "--report! --out!"),
    "tune-compile": ("tune.stage:compile_step", "--kernel! --toolkit! --arch! --out! --jobs"),
    "tune-measure": ("tune.stage:measure_step", "--kernel! --candidates! --sizes! --out! --worker"),
    "tune-install": ("tune.stage:install_step", "[results]"),
    "compare": ("recordings.compare", "before after --families --toolkits --all --csv --figure"),
    "record": (
        "recordings.record",
        "--config --build --work --out --families --toolkits --jobs --no-sweep --regimes --missing --experiments"
        " --regate --bundle --budget",
    ),
    "bundle": ("recordings.bundles:bundle_step", "bundle --results"),
    "accept": ("recordings.bundles:accept_step", "bundle --build --recordings --replace"),
    "article": ("paper.article", "do [names] --text --gpu --verdicts --schema"),
    "crate": ("host.crate", "--out!"),
    "sbom": ("host.sbom", "--env! --sif! --lock! --out!"),
    "lock-sources": ("host.nix_sources:lock_step", "--out"),
    "fetch-sources": ("host.nix_sources:fetch_step", "folder [environments]"),
    "gpu": ("gpu.device:describe_step", "--slug"),
    "baseline-kernels": ("gpu.ranges:kernels_step", "--names! --out"),
}
"""The module of each stage, and its options: ``--out!`` is required, of ``--a|--b`` at most one is given (``--a|--b!``:
just one), and ``[family]`` are any number of words."""

UNCOLLECTED = frozenset({"verdicts", "figures", "report"})
"""Stages that Python's collector of cycles would cost an eighth of their time."""


def _path(meaning: str, default: Path | None = None, **more: Any) -> dict[str, Any]:
    return {"help": meaning, "type": Path, "default": default, **more}


def _flag(meaning: str) -> dict[str, Any]:
    return {"help": meaning, "action": "store_true"}


def _number(meaning: str, default: float | None = None, type: type = int) -> dict[str, Any]:
    return {"help": meaning, "type": type, "default": default}


def _several(meaning: str, metavar: str, **more: Any) -> dict[str, Any]:
    return {"help": meaning, "nargs": "+", "metavar": metavar, **more}


def _repeated(meaning: str, metavar: str | None = None, **more: Any) -> dict[str, Any]:
    return {"help": meaning, "action": "append", "metavar": metavar, **more}


def _text(meaning: str) -> dict[str, Any]:
    return {"help": meaning}


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--all": _flag("print every row"),
    "--arch": _text("compute capability x 10 of the GPU, such as 90"),
    "--budget": _number("stop after this many seconds, with exit code 75", type=float),
    "--build": _path("folder of the builds", Path("results/build")),
    "--bundle": _path("also write this GPU's recordings of these families into one zip"),
    "--cache": _path("folder of finished builds (default: that of the environment)"),
    "--candidates": _path("the folder that tune-compile wrote"),
    "--check": _several("print these gates; exit with 1 if any failed", "GATE", type=Path),
    "--config": _path("the whole configuration, as JSON"),
    "--csv": _path("write every row as CSV"),
    "--env": _text("the image's name, such as cuda13"),
    "--experiments": _path("folder with one folder of experiments per family"),
    "--families": _text("comma-separated; default: all there are"),
    "--family": _text("such as ladder"),
    "--figure": _path("draw the largest changes (.svg, .pdf, .png)"),
    "--figures": _path("folder with one folder of figures per family"),
    "--free": _number("with --round: bytes of GPU memory that its points may take"),
    "--gates": _path("folder with one gate verdict per kernel", Path("results/gates")),
    "--gpu": _text("compute capability of the GPU that measures, such as 9.0"),
    "--gpus": _path("folders of judged recordings, one per other GPU", nargs="*") | {"default": []},
    "--images": _path("folder with the images' lock files; may be empty"),
    "--jobs": _number("how many at a time", 1),
    "--journal": _path("folder of finished pieces; kept between runs"),
    "--kernel": _text("the id of a tunable, such as ladder.warptile_tuned"),
    "--kernels": _several("kernels, with architectures (build) or toolkits (gates; default all)", "ID[=LIST]"),
    "--lock": _path("the list of the image's packages"),
    "--measure": _path("folder with one folder of rows per family"),
    "--missing": _flag("time only kernels without current rows; keep the others'"),
    "--name": _text("only these experiments, separated by commas; default: all of the family"),
    "--names": _several("lists of baseline, op, types in and out, layout, m, n, k and algorithm", "JSON"),
    "--no-sweep": _flag("gates and experiments only; file no times"),
    "--numeric": _path("folder of the numerical gates measured here"),
    "--own": _path("what own wrote of each kernel", nargs="*") | {"default": []},
    "--part": {"help": SUPPRESS},
    "--out": _path("what is written: a file, or a folder"),
    "--out-dir": _path("folder for one verdict per kernel"),
    "--patience": _number("with --out-dir: time limit of an entry point in seconds", type=float),
    "--processes": _number("with --out-dir: how many judge side by side", 1),
    "--recipe": _path("the image's Dockerfile"),
    "--recorded": _path("a GPU's folder under reports/recorded"),
    "--recordings": _path("where it is filed", RECORDINGS),
    "--regate": _flag("run the numerical gate even if its verdict is current"),
    "--regimes": _path("folder with one folder of rows of the regimes per family"),
    "--replace": _flag("replace families that this GPU has already"),
    "--report": _path("folder of the report"),
    "--results": _path("what the run made", ROOT / "results"),
    "--round": _number(
        "measure only this round, in this process, and write nothing else; it starts when a line is read from standard"
        " input, with the seconds that it may take, or none"
    ),
    "--schema": _flag("print the schema of a claims.yaml instead"),
    "--seed": _repeated("a seed to use again, instead of fresh ones", type=int),
    "--seeds": _number("how many fresh seeds each case is drawn with", 2),
    "--settings": {"help": "settings by experiment", "type": json.loads, "default": {}, "metavar": "JSON"},
    "--sif": _path("the image"),
    "--sizes": _text("comma-separated; all are searched at the first"),
    "--slug": _flag("print only the name of its recordings"),
    "--text": _path("check that each number of this text of the article has a row"),
    "--threads": _number("kernels compiled at a time (default 1)", 1),
    "--toolkit": _text("cuda12 or cuda13; must be the one on PATH"),
    "--toolkits": _text("comma-separated"),
    "--verdicts": _path("what was judged"),
    "--work": _path("journal and verdicts", ROOT / "results/record"),
    "--worker": {"help": SUPPRESS, "action": "store_true"},
    "after": _text("a folder, or COMMIT:FOLDER"),
    "before": _text("a folder, or COMMIT:FOLDER"),
    "bundle": _path("the zip"),
    "environments": _text("such as cuda13; default: all"),
    "family": _text("names of folders under kernels/; default: all"),
    "folder": _path("where they go"),
    "results": _path("what tune-measure wrote"),
    "do": {"choices": ("new", "check", "judge")},
    "names": _text("folders in articles/; default: all"),
    # A stage's own.
    "article --gpu": {"help": "whose recordings: a folder of reports/recorded", "default": "h200"},
    "article --verdicts": _path("show these instead of judging"),
    "accept --build": _path("build records, which hold build keys", ROOT / "results/build"),
    "figures --figures": _text("only these, separated by commas"),
    "lock-sources --out": _path("default: nix/sources.json", ROOT / "nix/sources.json"),
    "record --build": _path("the workflow's binaries", ROOT / "results/build"),
    "record --config": _path("settings over those of config/config.yaml and config/record.yaml"),
    "record --experiments": _text("run these only, comma-separated; 'none' for none; default: all"),
    "record --jobs": _number("kernels to gate at a time (default: as many as cores, at most 4)"),
    "record --out": _path("where recordings are filed", RECORDINGS),
    "record --regimes": _flag("also measure kernels sustained and in bursts, as one more take"),
    "own --kernel": _path("a Python file with KERNEL and bind"),
    "own --patience": _number("time limit of a launch, and of what is done with it, in seconds", 300.0, float),
    "own-figures results": _path("what own wrote"),
    "recorded-experiments --experiments": _several("names of experiments", "FAMILY=NAMES"),
    "sweep --kernels": _text("ids of the only kernels to time, comma-separated; default: all"),
    "sweep --regimes": _flag("time kernels alone, sustained and in bursts"),
}
"""Options by name, and those that mean something else in one stage."""


def parser(stage: str) -> ArgumentParser:
    """The parser of a stage's options."""
    module, options = STAGES[stage]
    made = ArgumentParser(f"gemmrepro {stage}", description=_told(module), formatter_class=RawDescriptionHelpFormatter)
    for word in options.split():
        required = word.endswith("!")
        names = word.strip("![]").split("|")
        group = made.add_mutually_exclusive_group(required=required) if len(names) > 1 else made
        for name in names:
            about = dict(OPTIONS.get(f"{stage} {name}", OPTIONS.get(name, {})))
            if word.startswith("["):
                about["nargs"] = "*"
            elif required and len(names) == 1:
                about["required"] = True
            group.add_argument(name, **about)
    return made


def _told(module: str) -> str:
    """A stage's own docstring, without importing it."""
    path = Path(__file__).parent / f"{module.partition(':')[0].replace('.', '/')}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def declared(module: str) -> str:
    """The command line of a module's stages, without help: it changes as what they are given may."""
    told = []
    for stage, (place, options) in STAGES.items():
        if place.partition(":")[0] == module:
            actions = parser(stage)._actions
            told.append((stage, options, [(each.dest, each.nargs, str(each.default)) for each in actions]))
    return repr(told)


def run(arguments: Sequence[str]) -> int:
    """Run the stage that the first argument names; its exit code. Raises UserError if there is none, or it fails."""
    stage, *rest = arguments or ["--help"]
    if stage in ("-h", "--help"):
        print("usage: python -m gemmrepro STAGE [options]\n")
        for name, (module, _) in STAGES.items():
            print(f"  {name:20} {_told(module).splitlines()[0]}")
        return 0
    if stage not in STAGES:
        raise UserError(f"there is no stage '{stage}'; known are {', '.join(STAGES)}.")
    module, _, function = STAGES[stage][0].partition(":")
    options = parser(stage).parse_args(rest)
    return getattr(importlib.import_module(f"gemmrepro.{module}"), function or "main")(options) or 0


if __name__ == "__main__":
    run_stage(lambda: run(sys.argv[1:]), collect=UNCOLLECTED.isdisjoint(sys.argv[1:2]))
