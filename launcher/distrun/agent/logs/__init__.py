"""The logs of this host's tasks: their indexes, and streaming to the launching side."""
