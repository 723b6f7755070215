"""The spec: a YAML file that is read, checked, and turned into the frozen :class:`~.model.Spec`."""
