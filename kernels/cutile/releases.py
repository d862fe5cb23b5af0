"""What each release of the compiler makes of the same sources, in turn with what the images' release makes.

Both multiply the same random matrices, alternately, warm; rounds draw new ones. Every binary is judged before it is
timed, in each round. The other releases' binaries are those that `python -m gemmrepro.build.versions` leaves in
``results/compilers``; where it did not run, nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PLAN = {"interval": 0.002, "least": 3, "most": 100}
"""A round's plan, but for its length."""

BINARIES = "results/compilers has none of its binaries by another release; see docs/running.md"


def points(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"kernel": kernel, "n": int(n)} for n, kernels in parameters["sizes"].items() for kernel in kernels]


def measure(context: Any, point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One kernel at one size: a row for each release that compiled it, but for the images'."""
    from gemmrepro import stats, timing
    from gemmrepro.build import versions
    from gemmrepro.core.journal import fresh_seeds
    from gemmrepro.errors import UserError
    from gemmrepro.gpu.loaded import Loaded
    from gemmrepro.measure.workspace import Workspace
    from gemmrepro.operations import Shape

    subject = next((subject for subject in context.subjects if subject.kernel == point["kernel"]), None)
    if subject is None:
        return
    kernel, shape, session = context.kernel(subject), Shape.cube(point["n"]), context.session
    image = versions.locked("nvidia-cuda-tileiras")
    if subject.build_key != versions.key_of(kernel, image):
        context.leave_out(subject, f"its binary is not of the release that the images hold, {image}")
        return
    others: dict[str, Any] = {}
    for release in context.parameters["releases"]:
        path = versions.binary(versions.BINARIES, kernel, release)
        if path.is_file():
            try:
                others[release] = Loaded.from_file(session, kernel, path, release)
            except UserError as error:
                context.leave_out(subject, f"{release}: {error}")
    if not others:
        context.leave_out(subject, BINARIES)
        return
    timer, bursts = timing.Timer(session), {release: [] for release in others}
    for seed in fresh_seeds(context.settings["rounds"]):
        workspace = Workspace(session, kernel.problem, shape, seed)
        operands = workspace.operands(kernel)
        ours = context.bind(subject, operands)
        known = workspace.check(ours, timer, kernel)
        for release, loaded in list(others.items()):
            theirs = loaded.bind(operands)
            check = workspace.check(theirs, timer, kernel)
            if not (known.passed and check.passed):
                context.leave_out(subject, f"{release} at {shape.n}: {known.message or check.message}")
                del others[release]
                continue
            estimates = (check.estimate_us, known.estimate_us)
            # Products that take a tenth of a second are worth the time of some pairs.
            seconds = max(context.settings["seconds"], PLAN["least"] * 1.1e-6 * sum(estimates))
            plan = timing.Plan(**PLAN, seconds=seconds)
            graphs = timing.wants_graphs(*estimates) and kernel.capturable
            bursts[release].append(timer.burst([theirs], [ours], "warm", plan, estimates, graphs))
    for release in others:
        times, beside = ([getattr(burst, side) for burst in bursts[release]] for side in ("times", "baseline"))
        ratio = stats.ratio_interval(beside, times)
        speeds = [2 * shape.n**3 / stats.rounds_interval(rounds).value * 1e-6 for rounds in (times, beside)]
        yield context.row(
            subject,
            compiler=release,
            n=shape.n,
            compiled=versions.key_of(kernel, release),
            tflops=speeds[0],
            image=speeds[1],
            ratio=ratio.value,
            low=ratio.low,
            high=ratio.high,
        )
