"""The page of `distrun report`: what happened to a job, in one HTML file."""
