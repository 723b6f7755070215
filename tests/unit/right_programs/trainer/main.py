"""Parameter servers, in a package of several modules."""

import importlib

import tensorflow as tf

from . import STEPS, cluster


def coordinate(resolver):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0.0)

    @tf.function
    def add():
        total.assign_add(1.0)

    for _ in range(STEPS):
        coordinator.schedule(add)
    coordinator.join()
    print("total", float(total.numpy()))


def main():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.is_server(resolver):
        cluster.serve(resolver)
    else:
        coordinate(resolver)
    importlib.import_module("trainer.settings")


if __name__ == "__main__":
    main()
