"""Creates the `tf.distribute` strategy; the workers of a cluster agree on what they run."""

import os
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import tensorflow as tf

from mnist_job import JobError, first_line, launcher, workarounds
from mnist_job.options import Options

experimental, cluster_resolver = tf.distribute.experimental, tf.distribute.cluster_resolver
_CROSS_DEVICE_OPS = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "one_device": tf.distribute.ReductionToOneDevice,
}


def create(options: Options) -> Any:  # noqa: PLR0911
    """Creates the strategy; that of a cluster returns when all its tasks are there."""
    gpus, how = tf.config.list_physical_devices("GPU"), options.reduction
    if options.strategy == "auto":
        options.strategy = "mirrored" if len(gpus) > 1 else "default"
    if how == "nccl" and not gpus:
        if options.strategy == "mirrored":
            raise JobError("nccl needs GPUs, and this process has none", code=2)
        print("nccl needs GPUs, and this process has none: TensorFlow uses gRPC")
    match options.strategy:
        case "one_device":
            return tf.distribute.OneDeviceStrategy((_devices(options) or ["/CPU:0"])[0])
        case "mirrored":  # a copy of the variables on each device; gradients are summed over them
            ops = _CROSS_DEVICE_OPS[how]() if how else None
            return tf.distribute.MirroredStrategy(_devices(options), cross_device_ops=ops)
        case "central_storage":  # variables on the CPU or the only GPU, computation on each device
            return experimental.CentralStorageStrategy(_devices(options))
        case "multi_worker_mirrored":
            communication = experimental.CommunicationOptions(implementation=how or "auto")
            return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
        case "parameter_server":  # divides variables of more than 256 KiB among the ps
            ps = options.task.number_of("ps")
            parts = experimental.partitioners.MinSizePartitioner(max_shards=ps)
            resolver = cluster_resolver.TFConfigClusterResolver()
            return tf.distribute.ParameterServerStrategy(resolver, parts)
        case "tpu":
            return tf.distribute.TPUStrategy(_tpu(os.environ.get("TPU_NAME", "local")))
    return tf.distribute.get_strategy()  # no distribution: TensorFlow's default


def _devices(options: Options) -> list[str] | None:
    """The devices as TensorFlow writes them; None: let the strategy choose."""
    if options.devices is None:
        return None
    names = options.devices.split(",")
    if options.devices.isdecimal():  # so many of the best kind
        best = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        names = [f"{best}:{at}" for at in range(int(options.devices))]
    if cpus := max((int(at) for at in re.findall(r"CPU:(\d+)", str(names))), default=0):
        divided = [tf.config.LogicalDeviceConfiguration()] * (cpus + 1)
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, divided)  # before anything uses the CPU
    # TensorFlow silently replaces a device that does not exist.
    there = [each.name.removeprefix("/device:") for each in tf.config.list_logical_devices()]
    usable, is_one = {*names} & {*there}, options.strategy == "one_device"
    if not names or len(usable) < len(names) or (is_one and len(names) > 1):
        takes = f"{options.strategy} takes {'one' if is_one else 'different ones'}"
        raise JobError(f"--devices {options.devices}: {takes} of {', '.join(there)}", code=2)
    return [f"/{name}" for name in names]


def _tpu(name: str) -> Any:
    """Returns the resolver of a TPU, when it is ready."""
    try:
        resolver = cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # An unknown name can raise any of these, from urllib, Google's client or TensorFlow.
    except (OSError, ImportError, RuntimeError, TypeError, ValueError, tf.errors.OpError) as error:
        place = "on this machine" if name == "local" else f"at {name!r}"
        advice = "name one in TPU_NAME, or choose another --strategy"
        raise JobError(f"no TPU {place} ({first_line(error)}); {advice}", code=69) from error
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
    """Waits for all workers; call it before this worker exits."""
    _gather(strategy, [0])
    # One that has the others' numbers could exit before they have its own. This may fail: no harm.
    with suppress(tf.errors.OpError):
        _gather(strategy, [0])


def _gather(strategy: Any, mine: list[int]) -> list[list[int]]:
    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    return list(tf.function(gather, autograph=False)().numpy().tolist())


def sigterm_handler(watch: launcher.SigtermWatch, save: Callable[[], None], strategy: Any) -> Any:
    """Returns TensorFlow's handler of SIGTERM for several workers: its `run` runs a training step.

    When any worker has received SIGTERM, all save and raise Preempted instead of the same step.
    """

    def leave() -> None:
        raise launcher.Preempted

    actions = experimental.TerminationConfig(exit_fn=leave, save_fn=save)
    # Without a checkpoint: it would restore its counter of steps on the chief only.
    unused = tf.train.CheckpointManager(tf.train.Checkpoint(), os.devnull, max_to_keep=1)
    workarounds.end_search_for_cloud()
    resolver = strategy.cluster_resolver
    handler = experimental.PreemptionCheckpointHandler(resolver, unused, None, actions)
    watch.end()
    return handler
