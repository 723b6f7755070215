"""One small factory for each `tf.distribute` strategy that the job can use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

import devices
import tpus
from distribution import DistributionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster import Task
    from distribution import Distribution

_SMALLEST_SHARD = 256 << 10
"""Bytes; TensorFlow's own default for MinSizePartitioner."""


def default(_asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """No distribution: TensorFlow's own default."""
    return tf.distribute.get_strategy()


def one_device(asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """All variables and computations on the device named."""
    return tf.distribute.OneDeviceStrategy(devices.existing(asked.device or "CPU:0"))


def mirrored(asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """A copy of the variables on each device; gradients are summed over them."""
    chosen = devices.several(asked.devices, asked.replicas)
    return tf.distribute.MirroredStrategy(chosen, _cross_device_ops(asked.cross_device_ops))


def central_storage(asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """Variables on the CPU (or on the only GPU), computation on each device."""
    chosen = devices.several(asked.devices, asked.replicas)
    return tf.distribute.experimental.CentralStorageStrategy(chosen)


def multi_worker_mirrored(asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """All tasks of TF_CONFIG. Returns when all of them have called it."""
    communication = (asked.communication or "auto").upper()
    if communication == "NCCL":
        _require_gpus("--communication nccl")
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[communication]
        )
    )


def parameter_server(asked: Distribution, task: Task) -> tf.distribute.Strategy:
    """For the chief, which schedules the steps. Returns when all workers and ps are there."""
    return tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver(),
        variable_partitioner=_partitioner(asked, task.count("ps")),
    )


def tpu(asked: Distribution, _task: Task) -> tf.distribute.Strategy:
    """The TPU with this name or address."""
    return tf.distribute.TPUStrategy(tpus.connect(asked.tpu))


def _cross_device_ops(name: str | None) -> tf.distribute.CrossDeviceOps | None:
    if name == "nccl":
        _require_gpus("--cross-device-ops nccl")
        return tf.distribute.NcclAllReduce()
    if name == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce()
    if name == "reduction_to_one_device":
        return tf.distribute.ReductionToOneDevice()
    return None


def _require_gpus(option: str) -> None:
    if not tf.config.list_physical_devices("GPU"):
        raise DistributionError(f"{option} needs GPUs, and this process has none")


def _partitioner(
    asked: Distribution, servers: int
) -> tf.distribute.experimental.partitioners.Partitioner | None:
    shards = asked.shards or servers
    if asked.variable_partitioner == "min_size":
        return tf.distribute.experimental.partitioners.MinSizePartitioner(_SMALLEST_SHARD, shards)
    if asked.variable_partitioner == "fixed_shards":
        return tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards)
    return None


FACTORIES: dict[str, Callable[[Distribution, Task], tf.distribute.Strategy]] = {
    factory.__name__: factory
    for factory in (
        default,
        one_device,
        mirrored,
        central_storage,
        multi_worker_mirrored,
        parameter_server,
        tpu,
    )
}
"""The names are those of `options.STRATEGIES`."""
