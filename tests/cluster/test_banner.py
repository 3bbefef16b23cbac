"""TensorFlow's banner, as versions 2.16 to 2.21 write it, is left out; nothing else is."""

import io
import os

import pytest

from tnt_notebook.cluster.output.banner import (
    WithoutBanner,
    banner_left_out,
    is_banner,
    without_banner,
)

BANNER = """\
2026-11-23 07:40:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. You may see slightly different numerical results due to floating-point round-off errors from different computation orders. To turn them off, set the environment variable `TF_ENABLE_ONEDNN_OPTS=0`.
2026-11-23 07:40:00.123456: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
2026-11-23 07:40:00.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
E0000 00:00:1732345200.123456    1234 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
W0000 00:00:1732345200.123456    1234 computation_placer.cc:177] computation placer already registered. Please check linkage and avoid linking the same target more than once.
I0000 00:00:1795420151.331516    8569 cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available CPU instructions in performance-critical operations.
To enable the following instructions: AVX2 AVX512F FMA, in other operations, rebuild TensorFlow with the appropriate compiler flags.
2026-11-23 07:40:00.123456: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT
2026-11-23 07:40:00.123456: E external/local_xla/xla/stream_executor/cuda/cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)
"""  # noqa: E501
KEPT = """\
2026-11-23 07:40:00.123456: W tensorflow/core/framework/op_kernel.cc:1857] OP_REQUIRES failed at conv_ops.cc:715 : INVALID_ARGUMENT
E0000 00:00:1732345200.123456    1234 gpu_device.cc:2344] Cannot dlopen some GPU libraries.
a line that quotes it: oneDNN custom operations are on.
The process of this rank, 12, has ended on host: SIGKILL.
"""  # noqa: E501


@pytest.mark.parametrize("line", BANNER.splitlines())
def test_each_line_is_known(line):
    assert is_banner(line)


def test_all_else_stays_as_it_is():
    banner, kept = (text.splitlines(keepends=True) for text in (BANNER, 3 * KEPT))
    mixed = [line for pair in zip(banner, kept, strict=False) for line in pair]
    assert without_banner("".join(mixed)) == "".join(kept[: len(banner)])
    assert without_banner("unfinished") == "unfinished"


@pytest.mark.parametrize("length", [1000, 700, 350])
def test_pieces_may_end_anywhere_in_a_line(length):
    text, shown = 3 * (BANNER + KEPT) + "unfinished", io.StringIO()
    write = WithoutBanner(shown.write)
    for begin in range(0, len(text), length):  # a kernel reads 1000 bytes at a time
        write(text[begin : begin + length])
    assert shown.getvalue() == 3 * KEPT + "unfinished"


def test_what_this_process_writes_below_python(capfd):
    with banner_left_out():
        os.write(2, (BANNER + KEPT).encode())
    with pytest.raises(KeyError), banner_left_out():
        os.write(2, b"last words\n")
        raise KeyError
    assert capfd.readouterr().err == KEPT + "last words\n"
