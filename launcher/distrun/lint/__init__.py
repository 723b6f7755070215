"""Static checks of a job's program before it starts: source texts in, warnings out.

:mod:`distrun.lint.check` has the interpreter asked, :mod:`distrun.lint.program` reads files; the
others decide, and are pure. A rule is silent about whatever it cannot decide: a false warning is
worse than none.
"""
