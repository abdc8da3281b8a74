"""Strict first in, first out: the head of the queue blocks all behind it. Best fit."""

from harness.cluster.state import STOP


def blocked(view, own, job):
    return STOP
