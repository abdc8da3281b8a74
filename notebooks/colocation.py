# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Co-location, from requests to tokens and lost work
#
# When the peak comes, do users wait, and what does the batch work lose? This notebook takes ten minutes of requests through all stages on
# 16 servers that batch jobs fill, under a preemption policy that is blind to topology and one that is not. `harness
# +experiment=colocation_day -m` does the same for a day, `+experiment=colocation_azure` for the real Azure trace on 64 servers.

# %%
import subprocess
import sys
from pathlib import Path

from IPython.display import Image, Markdown, display

from harness.claims.colocation import against, by_policy
from harness.figures import colocation_demand, colocation_pareto, colocation_timeline
from harness.figures.results import open_results
from harness.figures.settings import split
from harness.figures.style import image

repository = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "harness").is_dir())
out = repository / "results/runs/colocation_notebook"
words = ["colocation=day", "workload=azure_like", "workload.duration_s=600", "workload.load_scale=1.0", "pool=rtx4090_yi34b",
         "cluster=rtx4090_x41", "cluster.servers=16", "policy=godel,domain_first", "seed=range(2)"]
done = subprocess.run([sys.executable, "-m", "harness", "-m", *words, f"out={out}", "progress=false"], cwd=repository, capture_output=True,
                      text=True, check=False)
assert done.returncode == 0, done.stderr
results = open_results(out)
note, cells = next(split(results.summary))
cells[["policy", "seed", "requests", "slo_met_share", "lost_gpu_s_offline", "goodput_gpu_s_offline"]]

# %% [markdown]
# ## Demand to replicas
# The autoscaler of Kubernetes on the load of each service: seconds of a replica that arrive per second. It is a pure function of the
# requests, so every policy has to place the same replicas.

# %%
demand = results.table("demand", colocation_demand.COLUMNS, cells)
display(Image(image(colocation_demand.draw(demand, note), "png"), width=720))

# %% [markdown]
# ## Replicas to placements
# Each row is one stay of a replica: where it ran, when its model was loaded, and on which topology level its GPUs are. Across sockets
# (`server`) every layer's all-reduce crosses the slow link.

# %%
columns = ["service", "job_id", "replica", "start_time", "ready_time", "drain_time", "stop_time", "server", "level", "ended"]
replicas = results.table("replicas", columns, cells)
display(replicas.head(8))
replicas.groupby(["policy", "level"], observed=True).size().unstack(fill_value=0)

# %% [markdown]
# ## Placements to tokens
# The request-level replay on exactly these replicas, each as fast as its links: load, replicas, GPUs, evictions and time to first token.

# %%
timeline = results.table("timeline", colocation_timeline.COLUMNS, cells)
display(Image(image(colocation_timeline.draw(timeline, note), "png"), width=720))

# %% [markdown]
# ## Answers
# Users against batch owners, and what it costs. Two seeds say little: the recipes take ten.

# %%
display(Image(image(colocation_pareto.draw(cells, note), "png"), width=720))
display(Markdown(by_policy(results.summary).markdown()), Markdown(against(results.summary)))
