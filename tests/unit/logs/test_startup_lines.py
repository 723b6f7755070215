"""Which lines of TensorFlow are left out of what is shown."""

from __future__ import annotations

import re

import pytest

from distrun.logs.startup_lines import StartupFilter

# As TensorFlow 2.21 printed them on a machine without a GPU, with two workers, with parameter
# servers and with tf.data's service.
CPU = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795374482.521530    3742 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
I0000 00:00:1795374482.611175    3742 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.
E0000 00:00:1795374487.089085    3742 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)
I0000 00:00:1795374950.281509   14483 grpc_server_lib.cc:467] Started server with target: grpc://localhost:52027
I0000 00:00:1795374952.512076   15149 generator_dataset_op.cc:213] Memory patch applied: M_TRIM_THRESHOLD=128 kb was set.
I0000 00:00:1795378416.123138   26042 coordination_service.cc:502] Waiting for 1/2 tasks to connect.
I0000 00:00:1795378416.123152   26042 coordination_service.cc:505] Example stragglers:
/job:worker/replica:0/task:1
I0000 00:00:1795374950.652909   15149 eager_service_impl.cc:349] Creating sync eager service context with rendezvous_id on host vm /job:worker/replica:0/task:0
I0000 00:00:1795374950.653107   15149 eager_service_impl.cc:355] SessionOptions: goo.gle/debugstr
device_count {
  key: "CPU"
  value: 1
}
gpu_options {
  experimental {
  }
}
allow_soft_placement: true
experimental {
  collective_group_leader: "/job:ps/replica:0/task:0"
}

W0000 00:00:1795374952.539644   15149 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized because the dataset does not implement the AsGraphDefInternal() method needed to apply optimizations.
"""  # noqa: E501
# As people with GPUs, and with earlier versions, have reported them.
REPORTED = """\
2024-03-30 14:29:58.668656: I tensorflow/core/util/port.cc:113] oneDNN custom operations are on. You may see slightly different numerical results due to floating-point round-off errors from different computation orders. To turn them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`.
2023-10-09 13:36:23.355516: E tensorflow/compiler/xla/stream_executor/cuda/cuda_dnn.cc:9342] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
E0000 00:00:1744708234.746546 1370911 cuda_blas.cc:1407] Unable to register cuBLAS factory: Attempting to register factory for plugin cuBLAS when one has already been registered
2025-04-15 11:10:34.628126: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered
W0000 00:00:1744708234.960672 1370911 computation_placer.cc:177] computation placer already registered. Please check linkage and avoid linking the same target more than once.
2024-05-10 11:33:14.068255: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.
To enable the following instructions: AVX2 AVX512F AVX512_VNNI FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.
2024-05-10 11:33:15.185131: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
2021-02-05 15:59:10.301598: I tensorflow/stream_executor/cuda/cuda_gpu_executor.cc:982] successful NUMA node read from SysFS had negative value (-1), but there must be at least one NUMA node, so returning NUMA node zero
"""  # noqa: E501
# They say something that a user may need, or they are a program's own.
SHOWN = """\
E0000 00:00:1795374487.089085    3742 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
2024-01-01 00:00:00.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2256] Cannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly if you would like to use GPU.
/job:worker/replica:0/task:1
device_count {
  value: 1
}
I0000 00:00:1795374950.281509   14483 coordination_service.cc:1] Task 1 has not connected.
see: WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR, I think
my note on I0000 00:00:1795374482.521530    3742 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
To enable the following instructions: press any key
TF-TRT Warning: Could not find TensorRT
UserWarning: Do not pass an `input_shape`/`input_dim` argument to a layer.
"""  # noqa: E501


def select(text: str, *gpu_tasks: str) -> tuple[str, int]:
    """What is shown, and how many lines are left out."""
    shown = StartupFilter(gpu_tasks).select("worker:0", text.encode()).decode()
    return shown, text.count("\n") - shown.count("\n")


@pytest.mark.parametrize("text", [CPU, REPORTED])
def test_known_lines_are_left_out(text: str) -> None:
    assert select(text) == ("", text.count("\n"))


def test_each_line_is_left_out_in_any_place() -> None:
    for line in (CPU + REPORTED).splitlines():
        if not re.match(r"[IWET2]", line):
            continue  # a part of the message above it
        text = f"before\n{line}\n\nafter\n{line}  \n"
        shown, left_out = select(text)
        assert (shown, left_out) == ("before\n\nafter\n", 2), line


def test_other_lines_stay_as_they_are() -> None:
    assert select(SHOWN) == (SHOWN, 0)
    own, known = SHOWN.splitlines(keepends=True), REPORTED.splitlines(keepends=True)
    mixed = "".join(f"{first}{second}" for first, second in zip(own, known, strict=False))
    assert select(mixed)[0] == "".join(own[: len(known)])


def test_on_a_host_with_gpus_a_missing_one_is_shown() -> None:
    shown, left_out = select(CPU, "worker:0")
    assert [line.split("] ")[1][:20] for line in shown.splitlines()] == [
        "Could not find cuda ",
        "failed call to cuIni",
    ]
    assert left_out == len(CPU.splitlines()) - 2


MODULES = "Extension modules: numpy._core._multiarray_umath, google._upb._message (total: 219)\n"


def test_the_modules_that_a_crash_lists_are_left_out() -> None:
    crashed = "Fatal Python error: Segmentation fault\n\n  File x\n"
    assert select(crashed + MODULES)[0] == crashed


def test_what_is_left_out_is_counted() -> None:
    startup = StartupFilter()
    for task, text in (("worker:0", MODULES), ("worker:1", "x\n" + MODULES), ("ps:0", "")):
        startup.select(task, text.encode(), counted=True)
    startup.select("worker:2", MODULES.encode())
    assert (startup.count, startup.silent) == (2, {"worker:0"})
    startup.select("worker:0", b"y\n", counted=True)
    assert startup.silent == set()
