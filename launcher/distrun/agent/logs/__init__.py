"""The logs of this host's tasks: when each part was written, and streaming them elsewhere."""
