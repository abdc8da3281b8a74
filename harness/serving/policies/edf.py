"""Earliest deadline first on the time to first token, without preemption."""


def key(view, own, q):
    return view.requests.arrival[q] + view.requests.ttft_slo[q]
