"""TensorFlow's harmless start-up lines: a table of them, and a filter that leaves them out."""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache

# What absl's logging (since TensorFlow 2.17) and TensorFlow's own before it put before a message.
_BEFORE = (
    rb"(?:[IWE]\d{4} \d\d:\d\d:[\d.]{1,20} {1,9}\d{1,20} |"
    rb"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]{1,20}: [IWE] (?:[\w./-]{1,300}/)?)"
)
_NEEDED = (b"]", b"W", b"T", b"Extension m")
"""A block without any of these contains no such line. To find one byte is fast."""
_TABLE = r"""
port\.cc | oneDNN custom operations are on\. You may see slightly different... | default on x86
cpu_feature_guard\.cc | This TensorFlow binary is optimized... | built for older processors, too
- | To enable the following instructions: [\w. ]{1,400}, in other operations, rebuild... | the same
- | To enable them in other operations, rebuild TensorFlow with the appropriate... | as above
cuda_(?:dnn|fft|blas)\.cc | Unable to register cu\w+ factory: Attempting... | two parts of it do
computation_placer\.cc | computation placer already registered... | two parts register it
py_utils\.cc | TF-TRT Warning: Could not find TensorRT... | nothing trains by it
cuda_(?:gpu_)?executor\.cc | successful NUMA node read from SysFS had negative... | as in most VMs
mlir_graph_optimization_pass\.cc | MLIR V1 optimization pass is not enabled... | off by default
dump_mlir_util\.cc | disabling MLIR crash reproducer... | it is for the developers of TensorFlow
grpc_server_lib\.cc | Started server with target: grpc://... | `distrun status` shows the addresses
server_lib\.cc | Started tf\.data (?:Dispatch|Worker)Server running at... | the same for tf.data
dispatcher_impl\.cc | Started tf\.data service dispatcher CONFIG | its settings
worker_impl\.cc | Worker registered with dispatcher CONFIG | it connects as it should
coordination_service\.cc | Initializing CoordinationService... | the cluster connects as it should
coordination_service\.cc | Barrier\(WaitForAllTasks::[\d:]+\) has passed with status: OK | the same
coordination_service\.cc | Waiting for \d+/\d+ tasks to connect... | tasks start one by one
coordination_service\.cc | Example stragglers:(?:\n/job:\w+/replica:\d+/task:\d+)* | part of that
coordination_service\.h | /job:\w+/replica:\d+/task:\d+ has connected to coordin... | as it should
coordination_service_agent\.cc | Coordination agent has successfully connected... | the same
eager_service_impl\.cc | Creating sync eager service context... | the chief has sent it its settings
eager_service_impl\.cc | SessionOptions: goo\.gle/debug\w+ {0,9}(?:SETTING+\n?)? | the settings
kernel_and_device\.cc | Ignoring error status when releasing multi-device function... | at the end
base_collective_executor\.cc | BaseCollectiveExecutor::StartAbort UNAVAILABLE: DETAILS | a peer left
generator_dataset_op\.cc | Memory patch applied: M_TRIM_THRESHOLD=... | it does so for any generator
dataset\.cc | Input of GeneratorDatasetOp::Dataset will not be optimized... | no generator can be
- | WARNING: All log messages before absl::InitializeLog\(\) is [\w ]{18} to STDERR | none is lost
- | Extension modules: [\w., -]{1,50000}\(total: \d{1,6}\) | after a crash; its stacks are above it
"""
"""Lines that say nothing about the program or the machine that a user could use: the source file
that the line names (`-`: none), the text after it, and why it is harmless.
File and text are regular expressions; after `...`, anything may follow. They take linear time:
repetitions that could match the same characters are limited.
"""
_TABLE_WITHOUT_GPU = r"""
cudart_stub\.cc | Could not find cuda drivers on your machine, GPU will not be used... | as is right
cuda_(?:platform|driver)\.cc | failed call to cuInit: (?:INTERNAL: .{1,60}: )?NO_GPU... | the same
cuda_diagnostics\.cc | kernel driver does not appear to be running on this host... | the same
cuda_diagnostics\.cc | (?:retrieving CUDA diagnostic information for host|hostname): ... | as above
- | WARNING:tensorflow:There are non-GPU devices in [\w.`]{1,99}, not using nccl... | CPUs have none
"""
"""Harmless only on a host without a GPU: there, none is missing."""
_PARTS = {
    "...": r"[^\n]*",
    "DETAILS": r"[^\n]*(?:\n(?:Additional GRPC error information|:UNKNOWN:Error )[^\n]*){0,2}",
    "CONFIG": r"[^\n]*(?:\n(?:port|protocol|(?:job_gc|client|worker|dispatcher|heartbeat|snapshot"
    r"|data_transfer)_\w+): [^\n]*){0,20}(?:\n\nIt will not recover its state on restart\.)?",
    "NO_GPU": r"(?:UNKNOWN ERROR \(303\)|CUDA_ERROR_NO_DEVICE: )",
    "SETTING": r"(?:\n {0,99}(?:(?:device_count|gpu_options|experimental|pluggable_device_options)"
    r" \{|(?:key|value|allow_soft_placement|collective_group_leader): \S+|\}))",
}


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
    rows = (_TABLE if has_gpu else _TABLE + _TABLE_WITHOUT_GPU).split("\n")
    logged: list[str] = []
    others: list[str] = []
    for file, text, _ in (row.split(" | ") for row in rows if row):
        whole = re.sub(
            "CONFIG|DETAILS|SETTING|NO_GPU|[.]{3}$", lambda found: _PARTS[found[0]], text
        )
        (others if file == "-" else logged).append(
            whole if file == "-" else rf"{file}:\d+\] {whole}"
        )
    either = (b"|".join(map(str.encode, each)) for each in (logged, others))
    # It begins with a newline: a search for one byte is fast. The line's own newline stays, as it
    # begins the next match.
    return re.compile(rb"\n((?:%s(?:%s)|%s) {0,9})(?=\n)" % (_BEFORE, *either))
