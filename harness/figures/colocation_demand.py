"""Load and wanted replicas over time: what the autoscaler makes of a request trace."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.figures.labels import number
from harness.figures.settings import NotDrawn
from harness.figures.style import BLUE, INK, Look, canvas, curve_handle, legend_below, styled

CAPTION = """Load is what the requests of the last window ask for, in replicas at full throughput; the autoscaler wants so many that it is
the target share of them, scales out at once and in after its stabilization window. One seed (the lowest); the same under every policy."""
INSIDE: tuple[str, ...] = ()
COLUMNS = ("service", "time", "load", "wanted")
LOAD, WANTED = Look(INK, "-", ""), Look(BLUE, "-", "")


def draw(demand: pd.DataFrame, note: str = "") -> Figure:
    """One panel for each service, from the demand of one setting."""
    if demand.empty:
        raise NotDrawn("there is no demand")
    first = demand[demand["cell"] == demand.loc[demand["seed"].idxmin(), "cell"]]
    services = sorted(first["service"].unique())
    unit, seconds = ("hours", 3600.0) if np.ptp(first["time"]) > 7200 else ("minutes", 60.0)
    with styled():
        figure = canvas(1.7 * len(services) + 0.6, message(first), note)
        panels = figure.subplots(len(services), 1, sharex=True, squeeze=False)[:, 0]
        for axes, service in zip(panels, services, strict=True):
            mine = first[first["service"] == service]
            axes.plot(mine["time"] / seconds, mine["load"], color=LOAD.colour, linewidth=0.8)
            axes.step(mine["time"] / seconds, mine["wanted"], where="post", color=WANTED.colour)
            axes.set_ylim(0, None)
            axes.set_xlim(mine["time"].min() / seconds, mine["time"].max() / seconds)
            axes.set_ylabel("replicas")
            axes.set_title(service)
        panels[-1].set_xlabel(f"time ({unit})")
        legend_below(figure, [curve_handle("load", LOAD, False, 0.8), curve_handle("replicas wanted", WANTED, False)])
    return figure


def message(rows: pd.DataFrame) -> str:
    """The headline: the largest and the mean numbers."""
    total = rows.groupby("time")[["load", "wanted"]].sum()
    return (f"A load of {number(total['load'].mean())} replicas on average and {number(total['load'].max())} at most makes the autoscaler "
            f"want {number(total['wanted'].mean())} on average and {number(total['wanted'].max())} at most")
