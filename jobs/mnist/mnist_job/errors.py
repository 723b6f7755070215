"""What ends the job with one line: each error has its exit code."""


class JobError(Exception):
    """Data or results cannot be used; the message says what and why."""

    code = 65


class UsageError(JobError):
    """The options contradict each other, or do not fit the machine or the cluster."""

    code = 2


class CheckpointError(JobError):
    """A checkpoint is damaged, or of another run."""


class WriteError(JobError):
    """A file cannot be written, for example because the disk is full."""


class ClusterError(JobError):
    """The cluster is broken: a server cannot be started, or has lost updates."""

    code = 1


class NoTpuError(JobError):
    """There is no TPU with that name, or it does not answer."""

    code = 69
