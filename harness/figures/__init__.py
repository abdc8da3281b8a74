"""Figures and comparison tables from result tables; no module here runs or simulates anything.

Each figure is a module: ``draw(tables...)`` returns a Matplotlib figure, its parameters are named after the tables it needs; CAPTION
says how to read it; INSIDE names the keys (their last parts) that may vary within one figure (None: all); COLUMNS what it reads of
a cell table. ``draw`` raises ``settings.NotDrawn`` with the reason when its data are not there.
"""
