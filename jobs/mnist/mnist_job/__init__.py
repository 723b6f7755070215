"""The bundled job: the techniques of TensorFlow's tutorials, each with every strategy."""

import time

STARTED = time.monotonic()  # of this process, nearly


class JobError(Exception):
    """Ends the job with one line and an exit code: 65, data or results; 2, options or machine."""

    def __init__(self, message: str, code: int = 65) -> None:
        super().__init__(message)
        self.code = code


def first_line(error: Exception) -> str:
    return str(getattr(error, "message", error)).strip().partition("\n")[0][:300]
