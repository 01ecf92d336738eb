"""Device, number format and batch size of an encoder."""

import torch

from sbert_core.choices import Precision
from sbert_core.encoder.instructions import require_instructions

# Fewer, larger batches waste less on rounding (4096 was 2.5 % faster than 1024 for MiniLM on one
# thread), but several threads share the end of the work better when batches are small (1024 was
# 4 % faster than 512, equal to 1536, on two). The GPU figure is not measured.
DEFAULT_BUDGET = {"cpu": 1024, "cuda": 16_384}
ONE_THREAD_BUDGET = 4096
NARROW_BUDGET = 2048  # in bfloat16 and int8 on a CPU: 3 % faster than 1024 and 3072 on two threads
TRIED_BUDGETS = {"cpu": (512, 1024, 2048, 4096), "cuda": (4096, 8192, 16_384, 32_768, 65_536)}
PRECISIONS = {
    "cpu": (Precision.FLOAT32, Precision.BFLOAT16, Precision.INT8),
    "cuda": (Precision.FLOAT32, Precision.BFLOAT16, Precision.FLOAT16),
}


def choose_device(device: str | None) -> torch.device:
    """The device of that name, or the first GPU, or the CPU.

    Raises ValueError for devices other than CPU and CUDA.
    """
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type not in DEFAULT_BUDGET:
        raise ValueError(f"device {device!r} is not supported; use one of {[*DEFAULT_BUDGET]}")
    return chosen


def parse_precision(word: str) -> Precision:
    """The number format of that name; ValueError with those there are."""
    if word not in list(Precision):
        raise ValueError(f"precision {word!r} is unknown; use one of {', '.join(Precision)}")
    return Precision(word)


def resolve_precision(wanted: Precision, device: torch.device) -> Precision:
    """The number format of a device: `wanted`, or the device's own for `auto`.

    Raises ValueError for a format that the device lacks.
    """
    if device.type == "cuda":
        return _resolve_on_gpu(wanted)
    if wanted is Precision.AUTO:
        return Precision.FLOAT32
    _require_listed(wanted, device.type)
    if wanted is not Precision.FLOAT32:
        require_instructions(wanted)
    return wanted


def _resolve_on_gpu(wanted: Precision) -> Precision:
    has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted is Precision.AUTO:
        return Precision.BFLOAT16 if has_bfloat16 else Precision.FLOAT16
    _require_listed(wanted, "cuda")
    if wanted is Precision.BFLOAT16 and not has_bfloat16:
        raise ValueError("precision bfloat16 is not supported by this GPU; use float16 or float32")
    if wanted is Precision.FLOAT32:
        torch.backends.cuda.matmul.allow_tf32 = False  # TF32 keeps 10 of 23 bits
        torch.backends.cudnn.allow_tf32 = False
    return wanted


def _require_listed(wanted: Precision, kind: str) -> None:
    if wanted not in PRECISIONS[kind]:
        name = {"cpu": "a CPU", "cuda": "a GPU"}[kind]
        raise ValueError(
            f"precision {wanted} is not supported on {name}; use {', '.join(PRECISIONS[kind])}"
        )


def default_budget(device: torch.device, precision: Precision, threads: int) -> int:
    """Tokens per batch."""
    if device.type == "cpu" and precision is not Precision.FLOAT32:
        return NARROW_BUDGET
    is_one_thread = device.type == "cpu" and threads == 1
    return ONE_THREAD_BUDGET if is_one_thread else DEFAULT_BUDGET[device.type]
