"""The preflight on a host: dialing other hosts, listening for them, inspecting programs."""
