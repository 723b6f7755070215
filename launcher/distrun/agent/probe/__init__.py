"""Answers to the preflight: dialing other hosts, listening for them, inspecting programs."""
