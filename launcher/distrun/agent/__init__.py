"""The agent: the small process on each host that starts and watches its tasks.

It imports the standard library and itself only, runs on Python 3.8 and later without
site-packages, and is single-threaded. Of its modules the launcher uses `wire`, `kernel` and
`family`; it starts the rest as a process.
"""
