"""A package, for fixtures that end with its tests: a cluster costs a fifth of a core."""
