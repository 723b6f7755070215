"""Creates the `tf.distribute` strategy, with its devices, partitioner or TPU."""

from __future__ import annotations

import os
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import tensorflow as tf

from mnist_job.cluster import Task
from mnist_job.errors import NoTpuError, UsageError
from mnist_job.options import Options

_SMALLEST_SHARD = 256 << 10
"""Bytes; TensorFlow's own default for MinSizePartitioner."""
_TPU_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
"""The variables that TensorFlow's resolver reads."""
_TPU_CONNECT_SECONDS = 20.0


def of_this_machine() -> str:
    """The strategy if nobody asks for one: mirrored if there are several GPUs."""
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "default"


def create(options: Options, task: Task) -> tf.distribute.Strategy:  # noqa: PLR0911
    """Creates the strategy; that of a cluster returns when all its tasks are there."""
    if options.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy(_existing((options.devices or ["CPU:0"])[0]))
    if options.strategy == "mirrored":
        # A copy of the variables on each device; gradients are summed over them.
        return tf.distribute.MirroredStrategy(_devices(options), _cross_device_ops(options))
    if options.strategy == "central_storage":
        # Variables on the CPU (or on the only GPU), computation on each device.
        return tf.distribute.experimental.CentralStorageStrategy(_devices(options))
    if options.strategy == "multi_worker_mirrored":
        communication = (options.communication or "auto").upper()
        _require_gpus(communication == "NCCL", "--communication nccl")
        experimental = tf.distribute.experimental
        implementation = experimental.CommunicationImplementation[communication]
        how = experimental.CommunicationOptions(implementation=implementation)
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=how)
    if options.strategy == "parameter_server":
        return tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver(),
            variable_partitioner=_partitioner(options, task.count("ps")),
        )
    if options.strategy == "tpu":
        return tf.distribute.TPUStrategy(_tpu(options.tpu))
    return tf.distribute.get_strategy()  # no distribution: TensorFlow's default


def _devices(options: Options) -> list[str] | None:
    """The devices of a strategy with several replicas in one process; None: let it choose."""
    names, replicas = options.devices, options.replicas
    gpus = len(tf.config.list_physical_devices("GPU"))
    if replicas and gpus and replicas > gpus:
        raise UsageError(
            f"--replicas {replicas}: there are {gpus} GPUs (to train on logical CPU devices, hide "
            "them with CUDA_VISIBLE_DEVICES=-1)"
        )
    if replicas:
        names = tuple(f"{'GPU' if gpus else 'CPU'}:{index}" for index in range(replicas))
    if names is None:
        return None
    parsed = [_parsed(name) for name in names]
    if len(set(parsed)) < len(parsed):
        raise UsageError(f"--devices {','.join(names)} names a device twice")
    parts = max((index + 1 for kind, index in parsed if kind == "CPU"), default=1)
    if parts > 1:  # before anything uses the CPU
        (cpu,) = tf.config.list_physical_devices("CPU")
        divided = [tf.config.LogicalDeviceConfiguration()] * parts
        tf.config.set_logical_device_configuration(cpu, divided)
    return [_existing(name) for name in names]


def _existing(name: str) -> str:
    """The device's name as TensorFlow writes it, which would silently replace one not there."""
    kind, index = _parsed(name)
    counts = {each: len(tf.config.list_logical_devices(each)) for each in ("CPU", "GPU")}
    if index >= counts.get(kind, 0):
        there = ", ".join(f"{each}:{at}" for each in counts for at in range(counts[each]))
        raise UsageError(f"there is no device {name}; this process has {there}")
    return f"/{kind}:{index}"


def _parsed(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"/?(?:device:)?([a-z]+):(\d+)", name, re.IGNORECASE)
    if match is None:
        raise UsageError(f"{name!r} names no device: write it as CPU:0 or GPU:1")
    return match[1].upper(), int(match[2])


def _cross_device_ops(options: Options) -> tf.distribute.CrossDeviceOps | None:
    _require_gpus(options.cross_device_ops == "nccl", "--cross-device-ops nccl")
    return {
        None: lambda: None,
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
        "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
    }[options.cross_device_ops]()


def _require_gpus(wanted: bool, option: str) -> None:
    if wanted and not tf.config.list_physical_devices("GPU"):
        raise UsageError(f"{option} needs GPUs, and this process has none")


def _partitioner(options: Options, servers: int) -> Any:
    partitioners, shards = (tf.distribute.experimental.partitioners, options.shards or servers)
    if options.variable_partitioner == "min_size":
        return partitioners.MinSizePartitioner(_SMALLEST_SHARD, shards)
    if options.variable_partitioner == "fixed_shards":
        return partitioners.FixedShardsPartitioner(shards)
    return None


def _tpu(name: str | None) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Returns the resolver of a TPU that is ready; without a name, that of the environment."""
    name = name or next(filter(None, map(os.environ.get, _TPU_VARIABLES)), "local")

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        for addresses in resolver.cluster_spec().as_dict().values():
            for address in addresses:
                # TensorFlow itself would try for minutes.
                split = urlsplit(address if "://" in address else f"grpc://{address}")
                where = (split.hostname, split.port or 8470)
                socket.create_connection(where, _TPU_CONNECT_SECONDS).close()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # An unknown name can raise any of these, from urllib, Google's client or TensorFlow.
    except (OSError, ImportError, RuntimeError, TypeError, ValueError, tf.errors.OpError) as error:
        reason = getattr(error, "message", None) or str(error) or type(error).__name__
        reason = reason.strip().partition("\n")[0].partition(". ")[0][:200].rstrip(".")
        place = "on this machine" if name == "local" else f"at {name!r}"
        raise NoTpuError(
            f"no TPU {place} ({reason}); name one with --tpu, or choose another --strategy"
        ) from error
    return resolver
