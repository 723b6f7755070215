"""Every key of the spec: the schema of its value, its default and its documentation.

The loader, the JSON Schema and the reference all use this one table.
"""
