"""No TensorFlow: something that counts, and waits for nobody."""

import sys
import time

import faults


def main():
    for number in range(5):
        faults.at(number)
        print("count", number, flush=True)
    if faults.ME != faults.WHO:
        time.sleep(20)


def run():
    try:
        main()
    except LookupError:
        import logging

        logging.basicConfig(level="INFO")
        logging.exception("giving up")
        sys.exit(4)


run()
