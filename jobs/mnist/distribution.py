"""The command-line options of the single strategies."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

LOCAL = ("mirrored", "central_storage")
"""The strategies with several replicas in one process."""

_MEANT_FOR = {
    "device": ("one_device",),
    "devices": LOCAL,
    "replicas": LOCAL,
    "cross_device_ops": ("mirrored",),
    "communication": ("multi_worker_mirrored",),
    "reduce_as": ("multi_worker_mirrored",),
    "variable_partitioner": ("parameter_server",),
    "shards": ("parameter_server",),
    "tpu": ("tpu",),
}


class DistributionError(Exception):
    """The options do not fit the strategy or the machine: the message says why."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The options of the single strategies; None: the strategy's default."""

    device: str | None = None
    devices: tuple[str, ...] | None = None
    replicas: int | None = None
    cross_device_ops: str | None = None
    communication: str | None = None
    reduce_as: str | None = None
    variable_partitioner: str | None = None
    shards: int | None = None
    tpu: str | None = None


def _devices(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of different devices, such as GPU:0,GPU:1"
        )
    return names


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("distribution, for the strategies named in brackets")
    group.add_argument(
        "--device", metavar="DEVICE", help="[one_device] such as GPU:0 (default: CPU:0)"
    )
    group.add_argument(
        "--devices",
        type=_devices,
        metavar="DEVICE,...",
        help="[mirrored, central_storage] such as GPU:0,GPU:1, or CPU:0,CPU:1, which divides the "
        "CPU into logical devices (default: all GPUs, or the CPU)",
    )
    group.add_argument(
        "--replicas",
        type=_count,
        metavar="N",
        help="[mirrored, central_storage] instead of --devices: the first N GPUs, or, on a machine "
        "without GPUs, N logical CPU devices",
    )
    group.add_argument(
        "--cross-device-ops",
        choices=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        help="[mirrored] how gradients are summed over the devices; nccl needs GPUs (default: "
        "TensorFlow chooses by the devices)",
    )
    group.add_argument(
        "--communication",
        choices=("auto", "ring", "nccl"),
        help="[multi_worker_mirrored] how gradients are summed over the workers; nccl needs GPUs "
        "(default: auto)",
    )
    group.add_argument(
        "--reduce-as",
        choices=("float32", "float16"),
        help="[multi_worker_mirrored] the type in which gradients are sent: float16 halves the "
        "traffic, and rounds each worker's gradients to 11 bits (default: float32)",
    )
    group.add_argument(
        "--variable-partitioner",
        choices=("none", "min_size", "fixed_shards"),
        help="[parameter_server] divides each variable among the ps: into parts of 256 KiB or "
        "more, or into --shards parts (default: none)",
    )
    group.add_argument(
        "--shards",
        type=_count,
        metavar="N",
        help="[parameter_server] the most parts of a variable (default: the number of ps)",
    )
    group.add_argument(
        "--tpu",
        metavar="NAME",
        help="[tpu] its name, its address (grpc://HOST:PORT) or `local` (default: $TPU_NAME, or "
        "local)",
    )


def chosen(options: dict[str, Any], strategy: str) -> Distribution:
    """Removes these options from the dictionary of all options, and checks them.

    Raises:
        DistributionError: an option is for another strategy, or contradicts another option.
    """
    names = [field.name for field in fields(Distribution)]
    distribution = Distribution(**{name: options.pop(name) for name in names})
    for name, strategies in _MEANT_FOR.items():
        if getattr(distribution, name) is not None and strategy not in strategies:
            raise DistributionError(
                f"--{name.replace('_', '-')} is for {' and '.join(strategies)}, not for {strategy}"
            )
    if distribution.devices and distribution.replicas:
        raise DistributionError("--devices and --replicas say the same: give one of them")
    if distribution.shards and distribution.variable_partitioner in {None, "none"}:
        raise DistributionError("--shards needs --variable-partitioner fixed_shards or min_size")
    return distribution
