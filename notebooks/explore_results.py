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
# # Explore a results folder
#
# Opens the folder that a run or sweep wrote (`out=DIR`) and walks through its tables and figures. It takes the newest folder below
# `results`, or the one named in the environment variable `HARNESS_RESULTS`. Everything shown comes from functions of `harness.figures`;
# what you compute yourself goes into cells of your own.

# %%
from IPython.display import Image, Markdown, display

from harness.figures.comparisons import against, by_policy, default_baseline, with_batch_goodput
from harness.figures.results import newest_results, open_results
from harness.report import draw_all
from harness.report_tables import paired_grid, policy_grids
from harness.schema import PREEMPTIONS, RESULT_JOBS, RESULT_REQUESTS, SERVING_UTILIZATION, UTILIZATION, names

folder = newest_results()
results = with_batch_goodput(open_results(folder))
print(f"{folder}: {len(results.summary)} cells ended well, {len(results.failed)} failed")

# %% [markdown]
# ## The summary: one row for each cell
# First what the cell is (cluster, of requests their pool, workload, policy, pinning, seed, overrides), then its metrics.

# %%
results.summary.head(10)

# %%
results.failed.head(10)

# %% [markdown]
# ## Policies side by side
# Means over seeds with bootstrap 95 % intervals, for the first setting.

# %%
policies = by_policy(results.summary)
setting, table = policy_grids(results.summary, policies)[0]
display(Markdown(f"**{setting}**"), Markdown(table.markdown()))

# %% [markdown]
# ## Paired by seed
# The same seed gives the same workload under every policy, so differences are taken seed by seed. With fewer than 10 seeds no verdict is
# given.

# %%
baseline = default_baseline(results.summary)
paired, reason = against(results, baseline) if baseline else (policies.head(0), "a single policy was run")
display(Markdown(paired_grid(results.summary, paired, limit=40).markdown() if len(paired) else f"Nothing to compare: {reason}."))

# %% [markdown]
# ## The tables of one cell
# Every job with what became of it, every preemption decision with its victims, and the use of the cluster over time; or every request, and
# the use of the pool.

# %%
cell, serves = results.summary.head(1), results.holds("requests") and not results.holds("decisions")
columns = names(RESULT_REQUESTS) if serves else ["job_id", "kind", "gpus", *names(RESULT_JOBS)]
results.table("requests" if serves else "jobs", columns, cell).head(10)

# %%
if not serves:
    display(results.table("preemptions", names(PREEMPTIONS), cell).head(10))

# %%
results.table("utilization", names(SERVING_UTILIZATION if serves else UTILIZATION), cell).head(10)

# %% [markdown]
# ## Figures
# Each says in its title what the data show. Those whose data are not in this folder are named with the reason.

# %%
drawn, skipped = draw_all(results)
for figure in drawn:
    display(Image(figure.png, width=720, alt=figure.alt), Markdown(figure.caption))

# %%
display(Markdown("\n".join(f"- **{name}**: {why}" for name, why in skipped) or "All figures were drawn."))
