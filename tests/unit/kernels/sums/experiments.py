"""A stand-in experiment: errors that follow from a formula."""

from gemmrepro.experiments import Column, Experiment, Lines

SERIES = {"sums.inside": "inside", "sums.outside": "outside", "cublas.gemm": "cuBLAS"}


def _measure(context, point):
    for subject in context.subjects:
        error = point["k"] / 16 if subject.kernel == "sums.inside" else point["k"] ** 0.5 / 16
        error *= point["law"] != "integers"
        yield context.row(
            subject, law=point["law"], k=point["k"], rms_u=error, rms_low_u=0.9 * error, rms_high_u=1.1 * error, note=""
        )


EXPERIMENTS = (
    Experiment(
        name="errors",
        title="Errors of sums",
        question="Where do they err less?",
        kernels=("sums.inside", "sums.outside"),
        libraries=("cublas.gemm",),
        parameters={"ks": [64, 256, 1024], "laws": ["normal", "uniform", "integers"]},
        columns=(
            Column("law", "how the inputs are distributed", kind="text"),
            Column("k", "the problem's K", kind="integer"),
            Column("rms_u", "root mean square of the error", "u", low="rms_low_u", high="rms_high_u"),
            Column("rms_low_u", "its least", "u"),
            Column("rms_high_u", "its most", "u"),
            Column("note", "anything else", kind="text"),
        ),
        points=lambda parameters: [{"law": law, "k": k} for law in parameters["laws"] for k in parameters["ks"]],
        measure=_measure,
        figures=(
            Lines(
                name="errors",
                title="Error by where the sum is kept",
                x="k",
                x_label="K",
                y="rms_u",
                y_label="RMS error",
                panel="law",
                panels={"normal": "N(0, 1)", "uniform": "uniform", "integers": "integers"},
                series=SERIES,
                caption="What no GPU did.",
                zero="every output exact",
            ),
        ),
    ),
)
