"""What tasks say, and what it means: tables, one module a concern.

A rule is tried on what a task said of its end: the exception that ended it and the causes of that,
or the last line that it printed and the errors in TensorFlow's log. The first of
:data:`tables.KNOWN` that fits is taken.
"""
