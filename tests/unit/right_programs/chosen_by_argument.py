"""The strategy is chosen on the command line; for local runs TF_CONFIG gets a default."""

import argparse
import os
import sys

import tensorflow as tf

STRATEGIES = {
    "mirrored": tf.distribute.MirroredStrategy,
    "multi_worker": tf.distribute.MultiWorkerMirroredStrategy,
    "one": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
}


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=[*STRATEGIES, "tpu"], default="mirrored")
    parser.add_argument("--alone", action="store_true")
    return parser.parse_args(argv)


def create(name):
    if name == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    return STRATEGIES[name]()


def main(argv=None):
    args = parse(argv)
    os.environ.setdefault("TF_CONFIG", "{}")
    if args.alone:
        os.environ["TF_CONFIG"] = "{}"
    strategy = create(args.strategy)
    with strategy.scope():
        weights = tf.Variable(tf.zeros([2]))
    print(strategy.num_replicas_in_sync, weights.shape, tf.version.VERSION)
    return 0


if __name__ == "__main__":
    sys.exit(main())
