"""The two ways a command fails: bad input (exit status 2) and a failed cell (exit status 1)."""


class BadInput(Exception):
    """What the user gave cannot be used. The message is one line: what, where, what would be right."""


class InvalidIntention(Exception):
    """A policy proposed something that the engine must not do. Names policy, job, server and time."""
