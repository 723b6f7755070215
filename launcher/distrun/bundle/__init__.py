"""A job in one archive, for a bug report: written here, and read on another machine."""
