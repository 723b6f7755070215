"""Every key of the spec: its shape, its default, and what people are told about it.

This one table is read by the loader, the JSON Schema and the reference.
"""

from distrun.spec.keys.cluster import CLUSTER, ROLE
from distrun.spec.keys.document import LONGEST_NAME, SPEC

__all__ = ["CLUSTER", "LONGEST_NAME", "ROLE", "SPEC"]
