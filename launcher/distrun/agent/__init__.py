"""The agent: the small process on each host that starts and watches its tasks.

It imports only the standard library and itself, runs on Python 3.8 and later without
site-packages, and is single-threaded. The launcher imports :mod:`.protocol`, :mod:`.linux` and the
loop, and starts the rest as a process.
"""
