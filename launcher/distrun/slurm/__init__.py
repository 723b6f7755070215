"""What distrun knows of Slurm: its commands, allocations, and why its steps end."""
