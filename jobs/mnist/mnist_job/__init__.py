"""The bundled job: the techniques of TensorFlow's tutorials, each with every strategy."""


class JobError(Exception):
    """Ends the job with one line. By default, data or results cannot be used."""

    def __init__(self, message: str, code: int = 65) -> None:
        super().__init__(message)
        self.code = code
        """The exit code of the job."""


class UsageError(JobError):
    """The options do not fit each other, the machine or the cluster."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=2)
