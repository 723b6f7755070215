"""The agent: the small process on each host that starts and watches its tasks.

It imports only the standard library and itself, runs on Python 3.8 and later without
site-packages, and is single-threaded. The launcher imports two of its packages: :mod:`.protocol`
(what both ends of a link speak) and :mod:`.linux` (what both need of Linux). It starts the rest as
a process, on this machine or on another.
"""
