"""TensorFlow's harmless start-up lines: a table of them, and a filter that leaves them out."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache
from typing import NamedTuple

# What absl's logging (since TensorFlow 2.17) and TensorFlow's own before it put before a message.
_BEFORE = (
    rb"(?:[IWE]\d{4} \d\d:\d\d:[\d.]{1,20} {1,9}\d{1,20} |"
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]{1,20}: [IWE] (?:[\w./-]{1,300}/)?)"
)
_NEEDED = (b"]", b"W", b"T", b"Extension m")
"""A block without any of these contains no such line. To find one byte is fast."""


class StartupLine(NamedTuple):
    """One form of line that says nothing about the program or the machine that a user could use.

    Some have lines below them that belong to the same message.

    Attributes:
        file: the source file that the line names; empty if it names none.
        text: a regular expression for the rest of the line. It takes linear time: repetitions that
            could match the same characters are limited.
        without_gpu: the line is harmless only on a host without a GPU: there none is missing.
    """

    file: str
    text: str
    without_gpu: bool = False

    @property
    def pattern(self) -> bytes:
        """A regular expression for the line, after the time and the process if it has a file."""
        before = rb"%s:\d+\] " % re.escape(self.file.encode()) if self.file else b""
        return before + self.text.encode()


# Why a line is harmless, and what confirms it, if TensorFlow 2.21 does not print it on a CPU.
STARTUP_LINES = (
    # Python's TensorFlow never calls InitializeLog; the messages themselves follow
    StartupLine(
        "",
        r"WARNING: All log messages before absl::InitializeLog\(\) is called are written "
        r"to STDERR",
    ),
    # After a crash, Python lists what was imported; the stacks above say where it was;
    # faulthandler, Python/traceback.c
    StartupLine("", r"Extension modules: [\w., -]{1,50000}\(total: \d{1,6}\)"),
    # The default on x86 since TensorFlow 2.9; tensorflow/core/util/port.cc;
    # https://github.com/tensorflow/tensorflow/issues/64809
    StartupLine(
        "port.cc",
        r"oneDNN custom operations are on\. You may see slightly different numerical results "
        r"due to floating-point round-off errors from different computation orders\. To turn them "
        r"off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`\.",
    ),
    # The released packages support older processors, too
    StartupLine(
        "cpu_feature_guard.cc",
        r"This TensorFlow binary is optimized (?:to use available CPU instructions|with "
        r"oneAPI Deep Neural Network Library \(oneDNN\) to use the following CPU instructions) in "
        r"performance-critical operations(?:\.|: [\w. ]{1,400})",
    ),
    # The second line of the message of cpu_feature_guard.cc
    StartupLine(
        "",
        r"To enable (?:the following instructions: [\w. ]{1,400},|them) in other operations, "
        r"rebuild TensorFlow with the appropriate compiler flags\.",
    ),
    StartupLine(
        "cudart_stub.cc",
        r"Could not find cuda drivers on your machine, GPU will not be used\.",
        without_gpu=True,
    ),
    *(
        # Before TensorFlow 2.17: xla/stream_executor/cuda/cuda_driver.cc
        StartupLine(
            file,
            r"failed call to cuInit: (?:INTERNAL: CUDA error: Failed call to cuInit: )?"
            r"(?:UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected)",
            without_gpu=True,
        )
        for file in ("cuda_platform.cc", "cuda_driver.cc")
    ),
    # xla/stream_executor/cuda/cuda_diagnostics.cc
    StartupLine(
        "cuda_diagnostics.cc",
        r"(?:kernel driver does not appear to be running on this host \([\w.-]+\): "
        r"/proc/driver/nvidia/version does not exist|retrieving CUDA diagnostic information for "
        r"host: [\w.-]+|hostname: [\w.-]+)",
        without_gpu=True,
    ),
    *(
        # Two parts of TensorFlow register the same library; the first one is used; with a GPU:
        # https://github.com/tensorflow/tensorflow/issues/62075
        StartupLine(
            f"cuda_{name.lower()}.cc",
            rf"Unable to register cu{name} factory: Attempting to register factory for "
            rf"plugin cu{name} when one has already been registered",
        )
        for name in ("DNN", "FFT", "BLAS")
    ),
    # Two parts of TensorFlow register the same class; the first one is used; with a GPU:
    # https://github.com/tensorflow/tensorflow/issues/90790
    StartupLine(
        "computation_placer.cc",
        r"computation placer already registered\. Please check linkage and avoid linking the "
        r"same target more than once\.",
    ),
    # TensorRT serves trained models; training does not use it;
    # https://github.com/tensorflow/tensorflow/issues/61468
    StartupLine("py_utils.cc", r"TF-TRT Warning: Could not find TensorRT"),
    *(
        # The kernel knows one NUMA node only, as in most virtual machines; with a GPU:
        # https://github.com/tensorflow/tensorrt/issues/238
        StartupLine(
            file,
            r"successful NUMA node read from SysFS had negative value \(-1\), but there must "
            r"be at least one NUMA node, so returning NUMA node zero\.?(?: See more at \S+)?",
        )
        for file in ("cuda_gpu_executor.cc", "cuda_executor.cc")
    ),
    # That pass is off by default; tensorflow/compiler/mlir/mlir_graph_optimization_pass.cc
    StartupLine("mlir_graph_optimization_pass.cc", r"MLIR V1 optimization pass is not enabled"),
    # The reproducer is for the developers of TensorFlow; with XLA:
    # tensorflow/compiler/mlir/tensorflow/utils/dump_mlir_util.cc
    StartupLine(
        "dump_mlir_util.cc",
        r"disabling MLIR crash reproducer, set env var `MLIR_CRASH_REPRODUCER_DIRECTORY` to "
        r"enable\.",
    ),
    # `distrun status` and `distrun plan` show the addresses
    StartupLine("grpc_server_lib.cc", r"Started server with target: grpc://\S+"),
    # Tasks start one after the other; if one never connects, an error names it
    StartupLine(
        "coordination_service.cc",
        r"(?:Initializing CoordinationService|Barrier\(WaitForAllTasks::\d+::\d+\) has passed "
        r"with status: OK|Waiting for \d+/\d+ tasks to connect\.|Example stragglers:(?:\n/job:\w+"
        r"/replica:\d+/task:\d+)*)",
    ),
    # The cluster connects as it should
    StartupLine(
        "coordination_service.h",
        r"/job:\w+/replica:\d+/task:\d+ has connected to coordination service\. Incarnation: "
        r"\d+",
    ),
    StartupLine(
        "coordination_service_agent.cc", r"Coordination agent has successfully connected\."
    ),
    # A parameter server's or worker's settings, which the chief has sent
    StartupLine(
        "eager_service_impl.cc",
        r"(?:Creating sync eager service context with rendezvous_id on host \S+ /job:\w+/"
        r"replica:\d+/task:\d+|SessionOptions: goo\.gle/debug\w+ {0,9}(?:(?:\n {0,99}(?:(?:"
        r"device_count|gpu_options|experimental|pluggable_device_options) \{|(?:key|value|"
        r"allow_soft_placement|collective_group_leader): \S+|\}))+\n?)?)",
    ),
    # `distrun status` and `distrun plan` show the addresses
    StartupLine(
        "server_lib.cc", r"Started tf\.data (?:DispatchServer|WorkerServer) running at \S+"
    ),
    # A setting of the C library that TensorFlow makes for every generator
    StartupLine(
        "generator_dataset_op.cc", r"Memory patch applied: M_TRIM_THRESHOLD=\d+ kb was set\."
    ),
    # No generator can implement it
    StartupLine(
        "dataset.cc",
        r"Input of GeneratorDatasetOp::Dataset will not be optimized because the dataset does "
        r"not implement the AsGraphDefInternal\(\) method needed to apply optimizations\.",
    ),
    # tensorflow/python/distribute/cross_device_ops.py
    StartupLine(
        "",
        r"WARNING:tensorflow:There are non-GPU devices in `tf\.distribute\.Strategy`, not "
        r"using nccl allreduce\.",
        without_gpu=True,
    ),
)


class StartupFilter:
    """Leaves the lines of the table out of what is shown, and counts them.

    Args:
        gpu_tasks: the tasks on hosts with GPUs.
    """

    def __init__(self, gpu_tasks: Container[str] = ()) -> None:
        self.count = 0
        """The lines that were left out."""
        self._has_shown: dict[str, bool] = {}
        """The tasks that have printed anything, and whether any of it was shown."""
        self._gpu_tasks = gpu_tasks

    @property
    def silent(self) -> set[str]:
        """The tasks that have printed nothing but such lines."""
        return {task for task, has_shown in self._has_shown.items() if not has_shown}

    def select(self, task: str, block: bytes, *, counted: bool = False) -> bytes:
        """A block of whole lines without these lines. `counted`: what is left out is counted."""
        shown = block
        if any(byte in block for byte in _NEEDED):
            left, count = _pattern(task in self._gpu_tasks).subn(b"", b"\n" + block)
            shown = left[1:] if count else block
        if counted:
            self.count_left_out(task, block, shown)
        return shown

    def count_left_out(self, task: str, block: bytes, shown: bytes) -> None:
        """Note how many lines of a block are left out of what is shown of it."""
        if block:
            if shown is not block:  # to count lines would take as long as to show them
                self.count += block.count(b"\n") - shown.count(b"\n")
            self._has_shown[task] = self._has_shown.get(task, False) or bool(shown)


@cache
def _pattern(has_gpu: bool) -> re.Pattern[bytes]:
    lines = [each for each in STARTUP_LINES if not (has_gpu and each.without_gpu)]
    logged = b"|".join(each.pattern for each in lines if each.file)
    others = b"|".join(each.pattern for each in lines if not each.file)
    # It begins with a newline: a search for one byte is fast. The line's own newline stays, as it
    # begins the next match.
    return re.compile(rb"\n((?:%s(?:%s)|%s) {0,9})(?=\n)" % (_BEFORE, logged, others))
