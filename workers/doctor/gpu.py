"""A GPU measured by real work: are its vectors right, and how much of it is used?

In:  the files of a model, texts, a device; tests give a CPU as the device.
Out: GpuReport.

The denominator of the share of peak is a large matrix product measured on the same device, not the
figure of a data sheet.
"""

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import nn

from sbert_core.arrays import Float32Array, Int64Array
from sbert_core.choices import Precision
from sbert_core.encoder.batching import Batch
from sbert_core.encoder.checkpoint import read_parts
from sbert_core.encoder.encoder import Encoder
from sbert_core.json_record import optional
from sbert_core.threads import background

COMPARED_TEXTS = 256
WARMING_TEXTS = 1000
SPEED_SECONDS = 20.0
PEAK_SECONDS = 5.0
PEAK_SIZE = {"cuda": 8192, "cpu": 512}  # rows of the square matrices
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionReport:
    """One precision: how far vectors deviate from those of the CPU, and the speed.

    share_of_peak: of the operations per second of a matrix product. share_of_time_in_batches: the
    rest is tokenizing and waiting. utilization: as the GPU driver states it, None without one.
    """

    compared_texts: int
    largest_cosine_deviation: float
    peak_tflops: float
    tokens_per_second: float
    share_of_peak: float
    share_of_time_in_batches: float
    utilization: float | None
    token_budget: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """A device and its measurements, by precision; keys of the file that `--gpu` writes."""

    device: str
    memory_bytes: int | None = optional()
    capability: str | None = optional()
    cuda: str | None = optional()
    torch: str
    transformers: str
    texts: int
    float32: PrecisionReport | None = optional()
    bfloat16: PrecisionReport | None = optional()


class TimedEncoder(Encoder):
    """Adds up the time of batches, from their start to their vectors back in memory."""

    batch_seconds = 0.0

    def encode_batch(
        self, batch: Batch, normalize: bool = True, num_skipped: int = 0
    ) -> Float32Array:
        start = time.perf_counter()
        vectors = super().encode_batch(batch, normalize, num_skipped)
        self.batch_seconds += time.perf_counter() - start
        return vectors


def measure_gpu(
    model: Mapping[str, bytes],
    texts: Sequence[str],
    device: str = "cuda",
    precisions: Sequence[Precision] = (Precision.FLOAT32, Precision.BFLOAT16),
    seconds: float = SPEED_SECONDS,
) -> GpuReport:
    """Measure a device; called as a task that holds a GPU.

    model: its files by relative name. seconds: of each measurement of speed.
    """
    with tempfile.TemporaryDirectory(prefix="sbert-") as folder:
        for name, data in model.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        measured = measure_precisions(Path(folder), texts, device, precisions, seconds)
    gpu = torch.cuda.get_device_properties(0) if device == "cuda" else None
    return GpuReport(
        device=device if gpu is None else gpu.name,
        memory_bytes=None if gpu is None else gpu.total_memory,
        capability=None if gpu is None else f"{gpu.major}.{gpu.minor}",
        cuda=None if gpu is None else torch.version.cuda,
        torch=torch.__version__,
        transformers=transformers.__version__,
        texts=len(texts),
        float32=measured.get(Precision.FLOAT32),
        bfloat16=measured.get(Precision.BFLOAT16),
    )


def measure_precisions(
    folder: Path,
    texts: Sequence[str],
    device: str,
    precisions: Sequence[Precision],
    seconds: float,
) -> dict[Precision, PrecisionReport]:
    """Deviation from the CPU, speed and use of the device. folder: of the model."""
    wanted = Encoder.load(folder, device="cpu").encode(list(texts[:COMPARED_TEXTS]))
    return {
        precision: measure_precision(
            TimedEncoder(read_parts(folder, None), device=device, precision=precision),
            texts,
            wanted,
            seconds,
        )
        for precision in precisions
    }


def measure_precision(
    encoder: TimedEncoder, texts: Sequence[str], wanted: Float32Array, seconds: float
) -> PrecisionReport:
    """Measure one encoder. wanted: vectors of the first texts, as the CPU computes them.

    All texts are encoded again and again for `seconds`, after some to warm up.
    """
    deviation = largest_deviation(wanted, encoder.encode(list(texts[: len(wanted)])))
    dtype = getattr(torch, encoder.precision)
    peak = peak_flops(str(encoder.device), dtype, min(seconds, PEAK_SECONDS))
    encoder.encode(texts[:WARMING_TEXTS])
    encoder.batch_seconds = 0.0
    lengths: list[Int64Array] = []
    with sample_utilization(encoder.device) as samples:
        start = time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds or not lengths:
            lengths.append(encoder.encode_report(texts).distinct_lengths)
    all_lengths = np.concatenate(lengths)
    tokens_per_second = int(all_lengths.sum()) / spent
    return PrecisionReport(
        compared_texts=len(wanted),
        largest_cosine_deviation=deviation,
        peak_tflops=peak / 1e12,
        tokens_per_second=tokens_per_second,
        share_of_peak=tokens_per_second * flops_per_token(encoder, all_lengths) / peak,
        share_of_time_in_batches=encoder.batch_seconds / spent,
        utilization=float(np.mean(samples)) if samples else None,
        token_budget=encoder.token_budget,
    )


def largest_deviation(wanted: Float32Array, found: Float32Array) -> float:
    """The largest 1 - cosine of unit vectors that should be equal; a NaN counts as cosine -1."""
    cos = np.einsum("ij,ij->i", wanted.astype(np.float64), found.astype(np.float64))
    return float(np.max(1 - np.nan_to_num(cos, nan=-1.0)))


def peak_flops(device: str, dtype: torch.dtype, seconds: float) -> float:
    """Operations per second of a large matrix product, repeated for `seconds`."""
    size = PEAK_SIZE[torch.device(device).type]
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    _wait_for(a @ b)
    num_products, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        _wait_for(a @ b)
        num_products += 1
    return num_products * 2 * size**3 / spent


def _wait_for(product: torch.Tensor) -> None:
    """Block until the device has finished: reading a number needs the result."""
    product[0, 0].item()


def flops_per_token(encoder: Encoder, lengths: Int64Array) -> float:
    """Operations per token: linear layers every token passes, and attention over these lengths."""
    model = encoder.network["model"]
    linear = sum(
        module.weight.numel()
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not name.startswith("pooler")
    )
    mean_context = float((lengths.astype(np.float64) ** 2).sum() / lengths.sum())
    config = getattr(model, "config")  # noqa: B009 - of transformers, unknown to the type checker
    attention = 2 * config.num_hidden_layers * config.hidden_size * mean_context
    return 2 * (linear + attention)


@contextlib.contextmanager
def sample_utilization(device: torch.device) -> Iterator[list[float]]:
    """Shares of time the GPU was busy, from its driver; empty on a CPU or without pynvml."""
    samples: list[float] = []

    def sample(stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_SECONDS):
            samples.append(torch.cuda.utilization(device) / 100)

    has_driver = _has_utilization(device)
    with background(sample, "utilization") if has_driver else contextlib.nullcontext():
        yield samples


def _has_utilization(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:
        torch.cuda.utilization(device)
    except (ImportError, RuntimeError):
        return False
    return True
