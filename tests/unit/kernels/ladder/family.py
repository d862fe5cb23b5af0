"""A stand-in for the ladder with all that a family may hold: levels of an article, tuned twins, steps past it."""

from gemmrepro.registry import Code, Compute, Family, Kernel, Launch, Story, Timing, Tunable

FAMILY = Family(name="ladder", title="A ladder in fp32", article="ladder", summary="Stand-ins.", figures=("ratio",))

LEVELS = "naive coalesced smem blocktile_1d blocktile_2d vectorized warptile".split()
ISSUE, FMA = "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__inst_executed_pipe_fma.sum"


def _kernel(name, rung, source, params=None, compute=None, baseline="cublas.sgemm", **story):
    return Kernel(
        id=f"ladder.{name}",
        rung=rung,
        title=name.replace("_", " ").capitalize(),
        source=source,
        code=Code(name, params=params or {}),
        compute=compute or Compute(),
        launch=lambda shape: Launch((1, 1, 1), (128, 1, 1)),
        timing=Timing(baseline),
        story=Story(idea=f"What {name} adds.", **story),
    )


def _level(number, name, tuned=False):
    more = {"params": {"bm": 64 if tuned else 128, "bk": 8}, "article": "ladder"}
    if tuned:
        return _kernel(f"{name}_tuned", f"L{number} tuned", f"{number}_{name}.cu", evidence=(ISSUE,), **more)
    evidence = () if number == 1 else (ISSUE, FMA)
    system = f"L{number} {name}"
    return _kernel(name, f"L{number}", f"{number}_{name}.cu", published_system=system, evidence=evidence, **more)


TUNABLES = (
    Tunable("ladder.never_tuned", {"bm": (1,)}, lambda params: True, lambda params: _level(7, "warptile", tuned=True)),
)

KERNELS = (
    _kernel(
        "vector_add",
        "L0",
        "0_vector_add.cu",
        compute=Compute("vector_add", layout="vector"),
        baseline=None,
        article="ladder",
    ),
    *(_level(number, name) for number, name in enumerate(LEVELS, start=1)),
    *(_level(number, LEVELS[number - 1], tuned=True) for number in (4, 5, 6, 7)),
    *(
        _kernel(name, f"L7.{number}", f"7_{number}_{name}.cu", evidence=(ISSUE, FMA))
        for number, name in enumerate(("async_copy", "stages", "conflict_free", "block_order"), start=1)
    ),
)
