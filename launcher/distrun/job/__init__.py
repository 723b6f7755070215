"""A job's past and present: its folder, what happened, what its tasks use, what one asks of it."""
