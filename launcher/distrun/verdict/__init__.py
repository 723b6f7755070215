"""Why a job failed: the events, the tails of the tasks' logs -> a verdict. Pure, like lifecycle.

:mod:`case` collects what happened to the tasks, :mod:`reading` and :mod:`rules` make of each
task's exit and log what it died of, :mod:`judging` separates the first cause from its echoes.
"""
