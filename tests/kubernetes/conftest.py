"""The fixtures of tests on Kubernetes."""

from harness.pods import kubernetes, pod_spec, pods

__all__ = ["kubernetes", "pod_spec", "pods"]
