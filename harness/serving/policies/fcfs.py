"""First come, first served, with continuous batching: the default of vLLM and its kin [code]."""


def key(view, own, q):
    return view.requests.arrival[q]
