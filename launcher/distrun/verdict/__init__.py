"""Verdicts: why a job failed, by its events and the ends of its tasks' logs. Pure.

:mod:`.failures` collects what happened to the tasks. :mod:`.log_analysis` and :mod:`.rules` find
the error in a task's log, :mod:`.task_failures` says why each task failed, and :mod:`.analysis`
separates the first cause from its echoes.
"""
