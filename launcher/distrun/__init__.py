"""distrun: launches multi-worker TensorFlow jobs from one YAML file."""

__version__ = "0.1.0"
