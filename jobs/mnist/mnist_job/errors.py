"""What ends the job with one line: the message says what and why, the class has the exit code."""


class JobError(Exception):
    """Data or results cannot be used."""

    code = 65


class UsageError(JobError):
    """The options do not fit each other, the machine or the cluster."""

    code = 2


class CheckpointError(JobError):
    """A checkpoint is damaged, or of another run."""


class WriteError(JobError):
    """A file cannot be written, for example because the disk is full."""


class ClusterError(JobError):
    """A server cannot be started, or has lost updates."""

    code = 1


class NoTpuError(JobError):
    """There is no TPU with that name, or it does not answer."""

    code = 69
