"""Texts in logs, and what they mean: tables, one module a concern.

A rule is tried on the last error in a task's log: its last traceback with the message, or the
last lines where there is none. The first of :data:`tables.KNOWN` that fits is taken.
"""
