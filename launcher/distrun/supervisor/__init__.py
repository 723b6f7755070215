"""The process that owns one job: agents' reports and timers in, lifecycle's actions out."""
