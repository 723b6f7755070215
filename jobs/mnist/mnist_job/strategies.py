"""Creates the `tf.distribute` strategy; the workers of a cluster agree on what they run."""

import contextlib
import os
import socket
import zlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import tensorflow as tf

from mnist_job import JobError
from mnist_job.cluster import Task
from mnist_job.options import Options

experimental, cluster_resolver = tf.distribute.experimental, tf.distribute.cluster_resolver
_CROSS_DEVICE_OPS = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "one_device": tf.distribute.ReductionToOneDevice,
}


def create(options: Options, task: Task) -> Any:  # noqa: PLR0911
    """Creates the strategy; that of a cluster returns when all its tasks are there."""
    gpus, how = tf.config.list_physical_devices("GPU"), options.reduction
    if not options.strategy_is_chosen and len(gpus) > 1:
        options.strategy = "mirrored"
    if how == "nccl" and not gpus:
        if options.strategy == "mirrored":
            raise JobError("nccl needs GPUs, and this process has none", code=2)
        print("nccl needs GPUs, and this process has none: TensorFlow uses gRPC", flush=True)
    if options.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy((_devices(options) or ["/CPU:0"])[0])
    if options.strategy == "mirrored":
        # A copy of the variables on each device; gradients are summed over them.
        ops = _CROSS_DEVICE_OPS[how]() if how else None
        return tf.distribute.MirroredStrategy(_devices(options), cross_device_ops=ops)
    if options.strategy == "central_storage":
        # Variables on the CPU (or on the only GPU), computation on each device.
        return experimental.CentralStorageStrategy(_devices(options))
    if options.strategy == "multi_worker_mirrored":
        communication = experimental.CommunicationOptions(implementation=how or "auto")
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    if options.strategy == "parameter_server":
        # Divides variables of more than 256 KiB among the ps.
        parts = experimental.partitioners.MinSizePartitioner(max_shards=task.count("ps"))
        resolver = cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver, parts)
    if options.strategy == "tpu":
        return tf.distribute.TPUStrategy(_tpu(os.environ.get("TPU_NAME", "local")))
    return tf.distribute.get_strategy()  # no distribution: TensorFlow's default


def _devices(options: Options) -> list[str] | None:
    """The devices as TensorFlow writes them; None: let the strategy choose."""
    if options.devices is None:
        return None
    best = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    names = [f"{best}:{name}" if isinstance(name, int) else name for name in options.devices]
    if cpus := max((int(name[4:]) for name in names if name.startswith("CPU:")), default=0):
        divided = [tf.config.LogicalDeviceConfiguration()] * (cpus + 1)
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, divided)  # before anything uses the CPU
    # TensorFlow silently replaces a device that does not exist.
    there = [each.name.removeprefix("/device:") for each in tf.config.list_logical_devices()]
    if absent := [name for name in names if name not in there]:
        found = f"this process has {', '.join(there)}"
        raise JobError(f"there is no device {absent[0]}; {found}", code=2)
    return [f"/{name}" for name in names]


def _tpu(name: str) -> Any:
    """Returns the resolver of a TPU, when it is ready."""
    try:
        if "://" in name:  # TensorFlow itself would try for minutes
            where = urlsplit(name)
            socket.create_connection((where.hostname, where.port or 8470), 20.0).close()
        resolver = cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # An unknown name can raise any of these, from urllib, Google's client or TensorFlow.
    except (OSError, ImportError, RuntimeError, TypeError, ValueError, tf.errors.OpError) as error:
        reason = (str(error) or type(error).__name__).strip().partition("\n")[0].partition(". ")[0]
        place = "on this machine" if name == "local" else f"at {name!r}"
        advice = "name one in TPU_NAME, or choose another --strategy"
        raise JobError(f"no TPU {place} ({reason[:200]}); {advice}", code=69) from error
    return resolver


def agree(strategy: Any, settings: Mapping[str, object]) -> None:
    """All workers call this, and all raise JobError if any of their settings differs."""
    mine = [zlib.crc32(str(value).encode()) for value in settings.values()]
    columns = zip(settings, *_gather(strategy, mine), strict=True)
    if different := [name for name, *found in columns if len(set(found)) > 1]:
        barrier(strategy)
        names = ", ".join(different).replace("_", " ")
        advice = "give all of them the same arguments and data, and a --checkpoint-dir they share"
        raise JobError(f"the workers differ in {names}: {advice}")


def barrier(strategy: Any) -> None:
    """Waits for all workers; call it before this worker exits.

    A worker that has received the others' numbers could exit before they receive its own. So all
    gather once more. That may fail, because a peer has already exited, and does no harm.
    """
    _gather(strategy, [0])
    with contextlib.suppress(tf.errors.OpError):
        _gather(strategy, [0])


def _gather(strategy: Any, mine: list[int]) -> list[list[int]]:
    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    return list(tf.function(gather)().numpy().tolist())
