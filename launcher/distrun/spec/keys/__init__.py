"""Every key of the spec: the schema of its value, its default and its documentation.

The loader, the JSON Schema and the reference all use this one table.
"""

from distrun.spec.keys.cluster import CLUSTER, ROLE
from distrun.spec.keys.document import LONGEST_NAME, SPEC

__all__ = ["CLUSTER", "LONGEST_NAME", "ROLE", "SPEC"]
