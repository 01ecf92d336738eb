"""Arrays to a device, vectors back, without a wait for either.

In:  arrays of a batch; vectors of a batch on a device, perhaps not computed yet.
Out: tensors on the device; a Download, whose vectors are waited for when they are needed.

A GPU computes while Python goes on, until something waits for it. A copy from or to ordinary
memory does: the GPU is then idle until the next batch is launched. Pinned memory is copied in the
background, vectors on a stream of their own. torch keeps pinned buffers and uses them again, once
the copies that it has seen are done. On a CPU everything here is at hand at once.

Shapes: B texts, D dimensions.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

# One batch computes while the next is launched; a third would add memory alone.
BATCHES_ON_GPU = 2


class Download(Protocol):
    """Vectors of one batch on their way."""

    def wait(self) -> np.ndarray:
        """The vectors, once they have arrived; raises what went wrong on the device."""
        ...


class Downloader(Protocol):
    """Fetches vectors. max_in_flight: downloads at once; 0 if each has finished when it starts."""

    max_in_flight: int

    def start(self, vectors_BD: Tensor) -> Download:
        """Fetch vectors that the device has computed, or will."""
        ...


def upload(array: np.ndarray, device: torch.device) -> Tensor:
    """A tensor on the device; the array itself where that is the CPU."""
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


def choose_downloader(device: torch.device) -> Downloader:
    """What fetches vectors from this device."""
    if device.type != "cuda":
        return CpuDownloader()
    return CudaDownloader(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


class CpuDownloader:
    """Vectors of a CPU are where they belong."""

    max_in_flight = 0

    def start(self, vectors_BD: Tensor) -> Download:
        """The vectors."""
        return FinishedDownload(vectors_BD.numpy())


@dataclass(frozen=True, slots=True)
class FinishedDownload:
    """Vectors in memory."""

    vectors: np.ndarray

    def wait(self) -> np.ndarray:
        """The vectors, at once."""
        return self.vectors


class CudaDownloader:
    """Copies on a stream beside the one that computes. copies: that stream."""

    max_in_flight = BATCHES_ON_GPU

    def __init__(self, copies: torch.cuda.Stream) -> None:
        self.copies = copies

    def start(self, vectors_BD: Tensor) -> Download:
        """Copy into pinned memory, behind what was launched so far."""
        pinned_BD = torch.empty(vectors_BD.shape, dtype=vectors_BD.dtype, pin_memory=True)
        self.copies.wait_stream(torch.cuda.current_stream(vectors_BD.device))
        with torch.cuda.stream(self.copies):
            pinned_BD.copy_(vectors_BD, non_blocking=True)
        # A blocking event lets the waiting thread sleep; others keep a core busy.
        end = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        end.record(self.copies)
        return PinnedCopy(vectors_BD, pinned_BD, end)


@dataclass(frozen=True, slots=True)
class PinnedCopy:
    """A copy that has been launched. vectors: held until its end, else torch reuses the memory."""

    vectors: Tensor
    pinned: Tensor
    end: torch.cuda.Event

    def wait(self) -> np.ndarray:
        """The copy, once it is done."""
        self.end.synchronize()
        copied: np.ndarray = self.pinned.numpy()
        return copied
