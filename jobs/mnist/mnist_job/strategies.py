"""Creates the `tf.distribute` strategy; the workers of a cluster agree on what they run."""

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import tensorflow as tf

from mnist_job import JobError, UsageError
from mnist_job.cluster import Task
from mnist_job.options import Options

experimental = tf.distribute.experimental
_CROSS_DEVICE_OPS = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
}
_PARTITIONERS = {  # the first makes parts of 256 KiB or more
    "min_size": lambda ps: experimental.partitioners.MinSizePartitioner(max_shards=ps),
    "fixed_shards": experimental.partitioners.FixedShardsPartitioner,
}


def of_this_machine() -> str:
    """The strategy if nobody asks for one: mirrored if there are several GPUs."""
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "default"


def create(options: Options, task: Task) -> tf.distribute.Strategy:  # noqa: PLR0911
    """Creates the strategy; that of a cluster returns when all its tasks are there."""
    if not tf.config.list_physical_devices("GPU"):
        if options.cross_device_ops == "nccl":
            raise UsageError("nccl needs GPUs, and this process has none")
        if options.communication == "nccl":
            print("nccl needs GPUs, and this process has none: TensorFlow uses gRPC", flush=True)
    if options.strategy == "one_device":
        return tf.distribute.OneDeviceStrategy((_devices(options) or ["/CPU:0"])[0])
    if options.strategy == "mirrored":
        # A copy of the variables on each device; gradients are summed over them.
        sums = _CROSS_DEVICE_OPS.get(options.cross_device_ops, lambda: None)()
        return tf.distribute.MirroredStrategy(_devices(options), cross_device_ops=sums)
    if options.strategy == "central_storage":
        # Variables on the CPU (or on the only GPU), computation on each device.
        return experimental.CentralStorageStrategy(_devices(options))
    if options.strategy == "multi_worker_mirrored":
        how = experimental.CommunicationOptions(implementation=options.communication or "auto")
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=how)
    if options.strategy == "parameter_server":
        partitioner = _PARTITIONERS.get(options.variable_partitioner, lambda _: None)
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        return tf.distribute.ParameterServerStrategy(resolver, partitioner(task.count("ps")))
    if options.strategy == "tpu":
        return tf.distribute.TPUStrategy(_tpu(options.tpu))
    return tf.distribute.get_strategy()  # no distribution: TensorFlow's default


def _devices(options: Options) -> list[str] | None:
    """The devices as TensorFlow writes them; None: let the strategy choose."""
    if options.devices is None:
        return None
    best = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    names = [f"{best}:{name}" if isinstance(name, int) else name for name in options.devices]
    cpus = [int(name.removeprefix("CPU:")) for name in names if name.startswith("CPU:")]
    if cpus and max(cpus) > 0:  # before anything uses the CPU
        (cpu,) = tf.config.list_physical_devices("CPU")
        divided = [tf.config.LogicalDeviceConfiguration()] * (max(cpus) + 1)
        tf.config.set_logical_device_configuration(cpu, divided)
    # TensorFlow silently replaces a device that does not exist.
    there = [each.name.removeprefix("/device:") for each in tf.config.list_logical_devices()]
    for name in names:
        if name not in there:
            raise UsageError(f"there is no device {name}; this process has {', '.join(there)}")
    return [f"/{name}" for name in names]


def _tpu(name: str | None) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    """Returns the resolver of a TPU that is ready; without a name, that of the environment."""
    kubernetes = os.environ.get("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "local")
    name = name or os.environ.get("TPU_NAME") or kubernetes
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        for addresses in resolver.cluster_spec().as_dict().values():
            for address in addresses:
                # TensorFlow itself would try for minutes.
                where = urlsplit(address if "://" in address else f"grpc://{address}")
                socket.create_connection((where.hostname, where.port or 8470), 20.0).close()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    # An unknown name can raise any of these, from urllib, Google's client or TensorFlow.
    except (OSError, ImportError, RuntimeError, TypeError, ValueError, tf.errors.OpError) as error:
        reason = (str(error) or type(error).__name__).strip().partition("\n")[0].partition(". ")[0]
        place = "on this machine" if name == "local" else f"at {name!r}"
        advice = "name one with --tpu, or choose another --strategy"
        raise JobError(f"no TPU {place} ({reason[:200]}); {advice}", code=69) from error
    return resolver


def agree(strategy: tf.distribute.Strategy, settings: Mapping[str, object]) -> None:
    """Checks that all workers have the same settings.

    All workers must call it, and all raise JobError if any setting differs.
    """
    mine = {name: str(value) for name, value in settings.items()}
    padded = json.dumps(mine).encode().ljust(2048)  # more than any: all gather as many bytes
    all_settings = [json.loads(bytes(row)) for row in _gather(strategy, list(padded))]
    different = []
    for name in mine:
        found = dict.fromkeys(worker[name] for worker in all_settings)
        if len(found) > 1:
            different.append(f"{name.replace('_', ' ')} ({', '.join(found)})")
    if different:
        barrier(strategy)
        advice = "give all of them the same arguments and data, and a --checkpoint-dir they share"
        raise JobError(f"the workers differ in {', '.join(different)}: {advice}")


def barrier(strategy: tf.distribute.Strategy) -> None:
    """Waits for all workers; call it before this worker exits.

    A worker that has received the others' numbers could exit before they receive its own. So all
    gather once more: when that returns, all have finished the gather before. The second gather
    itself may fail, because a peer has already exited. That does no harm.
    """
    _gather(strategy, [0])
    with contextlib.suppress(tf.errors.OpError):
        _gather(strategy, [0])


def _gather(strategy: tf.distribute.Strategy, mine: list[int]) -> list[list[int]]:
    """Returns the numbers of every replica, in the order of the replicas."""

    def gather() -> tf.Tensor:
        return strategy.gather(strategy.run(lambda: tf.constant([mine], tf.int64)), axis=0)

    return list(tf.function(gather)().numpy().tolist())
