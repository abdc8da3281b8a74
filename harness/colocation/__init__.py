"""Co-location end to end: demand to replicas to placements to tokens to answers. Every stage takes and gives plain tables.

A thin layer over the two halves, which stay ignorant of each other: what a job-level replay says about when, where and at which topology
level each replica ran is an input table of the request-level replay.
"""
