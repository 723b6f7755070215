"""Shared by the tests: the command line, real agents, a network of hosts, and waiting."""
