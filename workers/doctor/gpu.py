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
from sbert_core.encoder.transfer import Download
from sbert_core.json_record import optional
from sbert_core.threads import background

COMPARED_TEXTS = 256
WARMING_TEXTS = 1000
SPEED_SECONDS = 20.0
PEAK_SECONDS = WAITING_SECONDS = 5.0
PEAK_SIZE = {"cuda": 8192, "cpu": 512}  # rows of the square matrices
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionReport:
    """One precision: how far vectors deviate from those of the CPU, and the speed.

    tokens_per_second_with_waits: with a wait after every batch. is_equal_with_waits: do vectors
    have the same bits then? share_of_peak: of the operations per second of a matrix product.
    share_of_time_in_batches: launching them and waiting for their vectors; the rest is waiting for
    the tokenizer. utilization: as the GPU driver states it, None without one.
    """

    compared_texts: int
    largest_cosine_deviation: float
    peak_tflops: float
    tokens_per_second: float
    tokens_per_second_with_waits: float
    is_equal_with_waits: bool
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
    float16: PrecisionReport | None = optional()


class TimedEncoder(Encoder):
    """Adds up the time of launching batches and of waiting for their vectors.

    waits: for the vectors of a batch before it launches the next.
    """

    batch_seconds = 0.0
    waits = False

    @property
    def max_in_flight(self) -> int:
        return 0 if self.waits else super().max_in_flight

    def launch_batch(
        self, batch: Batch, normalize: bool = True, num_skipped: int = 0
    ) -> "TimedDownload":
        with self.add_time():
            download = super().launch_batch(batch, normalize, num_skipped)
        return TimedDownload(download, self)

    @contextlib.contextmanager
    def add_time(self) -> Iterator[None]:
        """Add the time of the block to that of batches."""
        start = time.perf_counter()
        yield
        self.batch_seconds += time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class TimedDownload:
    """A download that adds the time of the wait for it."""

    download: Download
    encoder: TimedEncoder

    def wait(self) -> Float32Array:
        """The vectors, once they have arrived."""
        with self.encoder.add_time():
            return self.download.wait()


@dataclass(frozen=True, slots=True)
class RepeatedEncoding:
    """Texts encoded again and again. vectors: of one time. lengths: tokens, all times."""

    vectors: Float32Array
    lengths: Int64Array
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of all times."""
        return float(self.lengths.sum()) / self.seconds


def measure_gpu(
    model: Mapping[str, bytes],
    texts: Sequence[str],
    device: str = "cuda",
    precisions: Sequence[Precision] = (Precision.FLOAT32, Precision.AUTO),
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
        float16=measured.get(Precision.FLOAT16),
    )


def measure_precisions(
    folder: Path,
    texts: Sequence[str],
    device: str,
    precisions: Sequence[Precision],
    seconds: float,
) -> dict[Precision, PrecisionReport]:
    """Deviation from the CPU, speed and use of the device, by the format that a precision became.

    folder: of the model.
    """
    wanted = Encoder.load(folder, device="cpu").encode(list(texts[:COMPARED_TEXTS]))
    encoders = (
        TimedEncoder(read_parts(folder, None), device=device, precision=precision)
        for precision in precisions
    )
    return {
        encoder.precision: measure_precision(encoder, texts, wanted, seconds)
        for encoder in encoders
    }


def measure_precision(
    encoder: TimedEncoder, texts: Sequence[str], wanted: Float32Array, seconds: float
) -> PrecisionReport:
    """Measure one encoder. wanted: vectors of the first texts, as the CPU computes them.

    All texts are encoded again and again for `seconds`, after some to warm up, and for a shorter
    time with a wait after every batch.
    """
    deviation = largest_deviation(wanted, encoder.encode(list(texts[: len(wanted)])))
    dtype = getattr(torch, encoder.precision)
    peak = peak_flops(str(encoder.device), dtype, min(seconds, PEAK_SECONDS))
    encoder.encode(texts[:WARMING_TEXTS])
    encoder.waits = True
    with_waits = encode_repeatedly(encoder, texts, min(seconds, WAITING_SECONDS))
    encoder.waits = False
    encoder.batch_seconds = 0.0
    with sample_utilization(encoder.device) as samples:
        encoding = encode_repeatedly(encoder, texts, seconds)
    flops = encoding.tokens_per_second * flops_per_token(encoder, encoding.lengths)
    return PrecisionReport(
        compared_texts=len(wanted),
        largest_cosine_deviation=deviation,
        peak_tflops=peak / 1e12,
        tokens_per_second=encoding.tokens_per_second,
        tokens_per_second_with_waits=with_waits.tokens_per_second,
        is_equal_with_waits=np.array_equal(with_waits.vectors, encoding.vectors, equal_nan=True),
        share_of_peak=flops / peak,
        share_of_time_in_batches=encoder.batch_seconds / encoding.seconds,
        utilization=float(np.mean(samples)) if samples else None,
        token_budget=encoder.token_budget,
    )


def encode_repeatedly(encoder: Encoder, texts: Sequence[str], seconds: float) -> RepeatedEncoding:
    """Encode all texts until `seconds` have passed, at least once."""
    lengths: list[Int64Array] = []
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or not lengths:
        report = encoder.encode_report(texts)
        lengths.append(report.distinct_lengths)
    return RepeatedEncoding(report.vectors, np.concatenate(lengths), spent)


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
