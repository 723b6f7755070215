"""No TensorFlow: counts words."""

import collections
import time

import fate


def count(text):
    words = collections.Counter()
    for number, word in enumerate(text.split()):
        words[word] += 1
        fate.meet(number)
    return words


def main():
    fate.meet("before")
    for line in ("the cat and the dog", "a dog and a cat", "no cat at all"):
        print(count(line).most_common(1), flush=True)
    if not fate.IS_VICTIM:
        time.sleep(30)


if __name__ == "__main__":
    main()
