"""What ran out or was refused: memory, disk, ports, permission."""

from __future__ import annotations

from distrun.verdict.model import Kind
from distrun.verdict.rules.rule import Rule

PORT_ADVICE = (
    "end what holds the port (ss -ltnp shows it), or leave ports to distrun: give counts "
    "instead of addresses in `cluster`"
)
OWN_PORT_ADVICE = (
    "distrun holds port {} for the task, with SO_REUSEPORT: a server other than TensorFlow's must "
    "set that option before it binds the port"
)

RULES = (
    Rule(
        kind=Kind.GPU_MEMORY,
        cause="ran out of GPU memory",
        advice=(
            "use a smaller batch or model, give each task a GPU of its own (`gpus` of its role), "
            "or set TF_FORCE_GPU_ALLOW_GROWTH=true where several share one"
        ),
        any_of=(
            "CUDA_ERROR_OUT_OF_MEMORY",
            "CUDA out of memory",
            "cudaErrorMemoryAllocation",
            "Failed to allocate memory for GPU",
            "failed to allocate memory on GPU",
        ),
    ),
    Rule(
        kind=Kind.GPU_MEMORY,
        cause="ran out of GPU memory",
        advice=(
            "use a smaller batch or model, give each task a GPU of its own (`gpus` of its role), "
            "or set TF_FORCE_GPU_ALLOW_GROWTH=true where several share one"
        ),
        any_of=("OOM when allocating tensor", "Out of memory while trying to allocate"),
        all_of=("GPU",),
    ),
    Rule(
        kind=Kind.DISK_FULL,
        cause="found the disk full",
        advice="make room where it writes (df -h), or have it write elsewhere",
        any_of=("[Errno 28]", "No space left on device", "[Errno 122]", "Disk quota exceeded"),
        forms=(r".*: (?:No space left on device|Disk quota exceeded)$",),
    ),
    Rule(
        kind=Kind.HOST_MEMORY,
        cause="ran out of memory",
        advice="use a smaller batch, shuffle buffer or cache, or fewer tasks a host (`slots`)",
        types=("MemoryError", "_ArrayMemoryError"),
        any_of=(
            "OOM when allocating tensor",
            "std::bad_alloc",
            "Cannot allocate memory",
            "Unable to allocate ",
            "Out of memory",
        ),
    ),
    Rule(
        kind=Kind.PORT_TAKEN,
        cause="found a port taken",
        advice=PORT_ADVICE,
        any_of=(
            "Address already in use",
            "address already in use",
            "[Errno 98]",
            "Could not start gRPC server",
        ),
    ),
    Rule(
        kind=Kind.PERMISSION,
        cause="was refused permission",
        advice="check the owner and mode of what the line names, for the user who runs the tasks",
        types=("PermissionError", "errors_impl.PermissionDeniedError"),
        any_of=("Permission denied", "Operation not permitted"),
        forms=(r"\S+: (?:line )?\d+: .*: Permission denied$",),  # a shell
        codes=(126,),
    ),
)
