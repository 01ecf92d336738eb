"""A GPU measured by real work: are its vectors right, and how much of it is used?

In:  a model folder, texts, a device. Every function takes the device, so that a CPU will do.
Out: plain numbers for a report.

The denominator of the share of peak is a large matrix product on the same device: what it
reaches, not what a data sheet says.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn

from sbert_core.encoder import Encoder, Precision
from sbert_core.encoder.batching import Batch
from sbert_core.encoder.checkpoint import read_parts
from sbert_core.threads import beside

COMPARED_TEXTS = 256
WARMING_TEXTS = 1000
SPEED_SECONDS = 20.0
PEAK_SECONDS = 5.0
PEAK_SIZE = {"cuda": 8192, "cpu": 512}
SAMPLE_SECONDS = 0.2


class TimedEncoder(Encoder):
    """Adds up the time of batches, from their start to their vectors back in memory."""

    batch_seconds = 0.0

    def vectors_of(self, batch: Batch, normalize: bool = True, num_skipped: int = 0) -> np.ndarray:
        start = time.perf_counter()
        vectors = super().vectors_of(batch, normalize, num_skipped)
        self.batch_seconds += time.perf_counter() - start
        return vectors


def gpu_report(
    model: Mapping[str, bytes],
    texts: Sequence[str],
    device: str = "cuda",
    precisions: Sequence[Precision] = (Precision.FLOAT32, Precision.BFLOAT16),
    seconds: float = SPEED_SECONDS,
) -> dict[str, Any]:
    """As a task that holds a GPU. model: its files by relative name."""
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        for name, data in model.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return {
            **(_gpu_facts() if device == "cuda" else {"device": device}),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            **measured(Path(folder), texts, device, precisions, seconds),
        }


def _gpu_facts() -> dict[str, Any]:
    gpu = torch.cuda.get_device_properties(0)
    return {
        "device": gpu.name,
        "memory_bytes": gpu.total_memory,
        "capability": f"{gpu.major}.{gpu.minor}",
        "cuda": torch.version.cuda,
    }


def measured(
    folder: Path,
    texts: Sequence[str],
    device: str,
    precisions: Sequence[Precision],
    seconds: float,
) -> dict[str, Any]:
    """Deviation from the CPU, speed and use of the device, by precision."""
    few = list(texts[:COMPARED_TEXTS])
    wanted = Encoder.load(folder, device="cpu").encode(few)
    found: dict[str, Any] = {"texts": len(texts)}
    for precision in precisions:
        encoder = TimedEncoder(read_parts(folder, None), device=device, precision=precision)
        deviation = largest_deviation(wanted, encoder.encode(few))
        peak = peak_flops(device, getattr(torch, precision), min(seconds, PEAK_SECONDS))
        found[precision.value] = {
            "compared_texts": len(few),
            "largest_cosine_deviation": deviation,
            "peak_tflops": peak / 1e12,
            **speed(encoder, texts, peak, seconds),
        }
    return found


def largest_deviation(wanted: np.ndarray, found: np.ndarray) -> float:
    """1 - cosine of unit vectors that should be equal, at worst; NaN is as bad as it gets."""
    cos = np.einsum("ij,ij->i", wanted.astype(np.float64), found.astype(np.float64))
    return float(np.max(1 - np.nan_to_num(cos, nan=-1.0)))


def peak_flops(device: str, dtype: torch.dtype, seconds: float) -> float:
    """Operations per second of a large matrix product."""
    size = PEAK_SIZE[torch.device(device).type]
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    _finished(a @ b)
    num_products, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        _finished(a @ b)
        num_products += 1
    return num_products * 2 * size**3 / spent


def _finished(product: torch.Tensor) -> None:
    """Reading one number waits for the device."""
    product[0, 0].item()


def speed(
    encoder: TimedEncoder, texts: Sequence[str], peak: float, seconds: float
) -> dict[str, Any]:
    """Whole passes over the texts until the time is up, after some to warm up."""
    encoder.encode(texts[:WARMING_TEXTS])
    encoder.batch_seconds = 0.0
    lengths: list[np.ndarray] = []
    with utilization_sampled(encoder.device) as samples:
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds or not lengths:
            lengths.append(encoder.encode_report(texts).distinct_lengths)
    all_lengths = np.concatenate(lengths)
    tokens_per_second = int(all_lengths.sum()) / spent
    return {
        "tokens_per_second": tokens_per_second,
        "share_of_peak": tokens_per_second * flops_per_token(encoder, all_lengths) / peak,
        "share_of_time_in_batches": encoder.batch_seconds / spent,
        "utilization": float(np.mean(samples)) if samples else None,
        "token_budget": encoder.token_budget,
    }


def flops_per_token(encoder: Encoder, lengths: np.ndarray) -> float:
    """Of the linear layers every token passes, and of attention over texts of these lengths."""
    model: Any = encoder.network["model"]
    linear = sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith("pooler")
    )
    mean_context = float((lengths.astype(np.float64) ** 2).sum() / lengths.sum())
    attention = 2 * model.config.num_hidden_layers * model.config.hidden_size * mean_context
    return 2 * (linear + attention)


@contextlib.contextmanager
def utilization_sampled(device: torch.device) -> Iterator[list[float]]:
    """Shares of time the GPU was busy, as its driver says; none on a CPU or without pynvml."""
    samples: list[float] = []

    def sample(stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_SECONDS):
            samples.append(torch.cuda.utilization(device) / 100)

    is_told = _has_utilization(device)
    with beside(sample, "utilization") if is_told else contextlib.nullcontext():
        yield samples


def _has_utilization(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:
        torch.cuda.utilization(device)
    except (ImportError, RuntimeError):
        return False
    return True
