"""Device, number format and batch size of an encoder."""

from enum import StrEnum

import torch

# Fewer, larger batches waste less on rounding (4096 was 2.5 % faster than 1024 for MiniLM on one
# thread), but several threads share the end of the work better when batches are small (1024 was
# 4 % faster than 512, equal to 1536, on two). The GPU figure is not measured.
DEFAULT_BUDGET = {"cpu": 1024, "cuda": 16_384}
ONE_THREAD_BUDGET = 4096
TRIED_BUDGETS = {"cpu": (512, 1024, 2048, 4096), "cuda": (4096, 8192, 16_384, 32_768, 65_536)}


class Precision(StrEnum):
    """Number format of weights and states. Vectors are returned as float32 in any case."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def choose_device(device: str | None, precision: Precision) -> torch.device:
    """The device of that name, or the first GPU, or the CPU.

    Raises ValueError for devices other than CPU and CUDA, and for half precision on a CPU.
    """
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type not in DEFAULT_BUDGET:
        raise ValueError(f"device {device!r} is not supported; use one of {[*DEFAULT_BUDGET]}")
    if chosen.type == "cpu" and precision is not Precision.FLOAT32:
        # Slower there than float32, and oneDNN dies with an illegal instruction on some
        # virtual machines that announce AMX without having it.
        raise ValueError(f"precision {precision} needs a GPU; use float32 on a CPU")
    return chosen


def default_budget(device: torch.device, threads: int) -> int:
    """Tokens per batch."""
    is_one_thread = device.type == "cpu" and threads == 1
    return ONE_THREAD_BUDGET if is_one_thread else DEFAULT_BUDGET[device.type]
