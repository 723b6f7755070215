"""What distrun knows of Kubernetes: kubectl, the Job of a job's pods, and why pods fail."""
