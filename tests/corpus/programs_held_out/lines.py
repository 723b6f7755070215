"""No TensorFlow: counts lines in threads, logs with the logging module."""

import logging
import time

import mishap

logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("lines")


def main():
    for phase in ("open", "scan", "merge", "write"):
        log.info("phase %s", phase)
        mishap.point(phase)
        time.sleep(0.02)
    log.warning("waiting for the others")
    time.sleep(0 if mishap.STRUCK else 40)


if __name__ == "__main__":
    main()
