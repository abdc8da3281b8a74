"""Time of a token, and tokens per second, over the share of a model's weights that is on the GPU."""

import pandas as pd
from matplotlib.figure import Figure

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, GREEN, VERMILLION, Look, canvas, curve_handle, legend_below, percent, styled

CAPTION = """One request at a time on an RTX A6000. Lines: W [f / BW_gpu + (1 - f) / BW_cpu] + c from the step-time model, a straight line
in f, whose inverse is a hyperbola; marks: replayed, means over seeds. The KV cache stays on the GPU."""
LOOKS = (Look(GREEN, "-", "^"), Look(BLUE, "--", "o"), Look(VERMILLION, "-.", "s"))


def draw(curve: pd.DataFrame, replayed: pd.DataFrame, note: str = "") -> Figure:
    """Columns of both: model, on_gpu (share), and s of a token: ``formula`` of the curve, ``replayed``."""
    if curve.empty or replayed.empty:
        raise NotDrawn("no share of the weights on the GPU was replayed")
    models = list(dict.fromkeys(curve["model"].astype(str)))
    with styled():
        figure = canvas(2.9, message(curve), note)
        left, right = figure.subplots(1, 2)
        for model, look in zip(models, LOOKS, strict=False):
            for axes, value in ((left, lambda seconds: 1e3 * seconds), (right, lambda seconds: 1 / seconds)):
                line, marks = curve[curve["model"] == model], replayed[replayed["model"] == model]
                axes.plot(100 * line["on_gpu"], value(line["formula"]), color=look.colour, linestyle=look.line)
                axes.plot(100 * marks["on_gpu"], value(marks["replayed"]), look.mark, color=look.colour, clip_on=False)
        for axes, text in ((left, "time of a token (ms)"), (right, "tokens per second")):
            axes.set_xlim(0, 100)
            axes.set_ylim(0, None)
            axes.set_xlabel("weights on the GPU (%)")
            axes.set_ylabel(text)
        legend_below(figure, [curve_handle(model, look) for model, look in zip(models, LOOKS, strict=False)])
    return figure


def message(curve: pd.DataFrame) -> str:
    """The headline: what the first tenth of the weights on the host costs, for the largest model."""
    slowest = curve.loc[curve["formula"].idxmax(), "model"]
    rows = curve[curve["model"] == slowest].set_index("on_gpu")["formula"]
    near = min((share for share in rows.index if share < 1.0), key=lambda share: abs(share - 0.9), default=None)
    if near is None or 1.0 not in rows.index:
        return "Time of a token over the share of the weights on the GPU"
    times = number(float(rows[near] / rows[1.0]), 2)
    return f"With {percent(1 - float(near), 0)} of the weights on the host a token of {slowest} takes {times} times as long"
