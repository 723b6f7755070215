"""The bundled job: the techniques of TensorFlow's tutorials, each with every strategy."""

import time

STARTED = time.monotonic()  # of this process, nearly


class JobError(Exception):
    """Ends the job with one line and an exit code: by default, data or results cannot be used."""

    def __init__(self, message: str, code: int = 65) -> None:
        super().__init__(message)
        self.code = code


class UsageError(JobError):
    """The options do not fit each other, the machine or the cluster."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=2)
