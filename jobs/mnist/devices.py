"""The devices of this process. The CPU can be divided into several."""

from __future__ import annotations

import re

import tensorflow as tf

from distribution import DistributionError

_NAME = re.compile(r"/?(?:device:)?(?P<type>[a-z]+):(?P<index>\d+)", re.IGNORECASE)


def existing(name: str) -> str:
    """Returns the device's name as TensorFlow writes it: `gpu:0` becomes `/GPU:0`.

    Raises:
        DistributionError: this process has no such device. (TensorFlow would silently use another
            one, or end with a traceback.)
    """
    kind, index = _parsed(name)
    if index >= len(tf.config.list_logical_devices(kind)):
        there = ", ".join(
            f"{device.device_type}:{at}"
            for kind in ("CPU", "GPU")
            for at, device in enumerate(tf.config.list_logical_devices(kind))
        )
        raise DistributionError(f"there is no device {name}; this process has {there}")
    return f"/{kind}:{index}"


def several(names: tuple[str, ...] | None, replicas: int | None) -> list[str] | None:
    """Returns the devices to train on; None: let the strategy choose.

    Args:
        names: the devices that the user listed. The CPU is divided into as many as needed.
        replicas: how many devices, if none are listed: GPUs if there are any, otherwise CPUs.

    Raises:
        DistributionError: there are not enough devices, or no such device.
    """
    gpus = len(tf.config.list_physical_devices("GPU"))
    if names is None and replicas is not None:
        if gpus and replicas > gpus:
            raise DistributionError(
                f"--replicas {replicas}: there are {gpus} GPUs (to train on logical CPU devices, "
                "hide them with CUDA_VISIBLE_DEVICES=-1)"
            )
        names = tuple(f"{'GPU' if gpus else 'CPU'}:{index}" for index in range(replicas))
    if names is None:
        return None
    parsed = [_parsed(name) for name in names]
    if len(set(parsed)) < len(parsed):
        raise DistributionError(f"--devices {','.join(names)} names a device twice")
    _divide_cpu(max((index + 1 for kind, index in parsed if kind == "CPU"), default=1))
    return [existing(name) for name in names]


def _parsed(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise DistributionError(f"{name!r} names no device: write it as CPU:0 or GPU:1")
    return match["type"].upper(), int(match["index"])


def _divide_cpu(parts: int) -> None:
    """Divides the CPU into logical devices. Must be called before anything uses the CPU."""
    if parts > 1:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * parts
        )
