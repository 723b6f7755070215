"""Pure: what makes a job slow."""
