"""Tasks: executing their programs, their ports, stopping them, and what they report."""
