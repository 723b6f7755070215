"""The hosts of a job: how each is reached, its link, and what goes over that."""
