"""Published claims beside what was measured: one module for each paper or family, over the rows and verdicts of ``claim``.

Each has ``claims(done)`` and ``sections(done)``, from the folders of the recipes that were run; some draw figures of several recipes.
"""
