"""Batches in flight on a device, on one made of plain Python: what a GPU would do, in its order."""

import weakref

import numpy as np
import pytest
import torch
from support.fake_cuda import FakeCuda, FakeStream, FakeTensor

from sbert_core.encoder import transfer
from sbert_core.encoder.encode import encode_texts
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.transfer import CudaDownloader, upload


class DeviceEncoder:
    """An encoder whose batches are computed on a fake GPU, by a real encoder.

    capacity: tokens of a batch that the device has memory for. bad: numbers of the texts whose
    vectors are not finite. fails: nothing is computed but an error. log: the number of a batch when
    it is launched, minus it at a wait.
    """

    num_parallel = 1
    max_in_flight = CudaDownloader.max_in_flight

    def __init__(self, encoder: Encoder, cuda: FakeCuda, capacity: int = 10**9) -> None:
        self.encoder, self.cuda, self.capacity = encoder, cuda, capacity
        self.token_budget, self.dim = encoder.token_budget, encoder.dim
        self.tokenize = encoder.tokenize
        self.downloader = CudaDownloader(FakeStream())
        self.log: list[int] = []
        self.bad: set[int] = set()
        self.fails = False

    def plan_batches(self, lengths):
        return self.encoder._backbone.batches(lengths, self.token_budget, 1)

    def launch_batch(self, batch, normalize, num_skipped):
        if batch.num_tokens > self.capacity:
            raise torch.OutOfMemoryError("made up")
        vectors = FakeTensor((len(batch.rows), self.dim), self.cuda)
        held = weakref.ref(vectors)

        def compute() -> None:
            if self.fails:
                raise RuntimeError("an illegal memory access was encountered")
            computed = self.encoder.launch_batch(batch, normalize, num_skipped).wait().copy()
            computed[[row in self.bad for row in batch.rows.tolist()]] = np.nan
            if (target := held()) is not None:
                np.copyto(target.values, computed)

        number = sum(entry > 0 for entry in self.log) + 1
        self.log.append(number)
        self.cuda.stream_now.launch(compute)
        return LoggedDownload(self.downloader.start(vectors), self.log, number)


class LoggedDownload:
    def __init__(self, download, log: list[int], number: int) -> None:
        self.download, self.log, self.number = download, log, number

    def wait(self):
        self.log.append(-self.number)
        return self.download.wait()


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    cuda = FakeCuda()
    monkeypatch.setattr(transfer, "torch", cuda)
    return cuda


@pytest.fixture(scope="module")
def encoder(bert_folder) -> Encoder:
    return Encoder.load(bert_folder, token_budget=100, threads=1)


def test_batches_in_flight_give_the_same_vectors_two_at_a_time(encoder, texts, cuda):
    device = DeviceEncoder(encoder, cuda)
    seen: list[tuple[int, int]] = []
    report = encode_texts(device, texts, progress=lambda *counts: seen.append(counts))
    want = encoder.encode_report(texts)
    np.testing.assert_array_equal(report.vectors, want.vectors)
    assert report.reasons == want.reasons
    assert np.sum(seen, axis=0).tolist() == [want.num_distinct, want.num_encoded_tokens]
    last = len(seen)
    assert last > 5
    steady = [entry for number in range(3, last + 1) for entry in (-(number - 2), number)]
    assert device.log == [1, 2, *steady, -(last - 1), -last]


@pytest.mark.parametrize("seed", range(12))
def test_lack_of_memory_and_bad_numbers_cost_no_other_vector(encoder, texts, cuda, seed):
    rng = np.random.default_rng(seed)
    device = DeviceEncoder(encoder, cuda, capacity=int(rng.integers(encoder.max_length, 120)))
    device.bad = set(rng.integers(0, len(texts), rng.integers(6)).tolist())
    seen: list[tuple[int, int]] = []
    report = encode_texts(device, texts, progress=lambda *counts: seen.append(counts))
    want = encoder.encode_report(texts)
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    is_bad = np.array([numbers[text] in device.bad for text in texts])
    assert list(report.reasons) == np.flatnonzero(is_bad).tolist()
    assert np.isnan(report.vectors[is_bad]).all()
    np.testing.assert_array_equal(report.vectors[~is_bad], want.vectors[~is_bad])
    assert np.sum(seen, axis=0).tolist() == [want.num_distinct, want.num_encoded_tokens]
    in_flight = np.cumsum(np.sign(device.log))
    assert (in_flight.max(), in_flight[-1]) == (2, 0)


def test_error_of_the_device_surfaces_at_a_later_batch(encoder, texts, cuda):
    device = DeviceEncoder(encoder, cuda)
    device.fails = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
        encode_texts(device, texts)
    assert device.log == [1, 2, -1]


def test_one_text_beyond_the_memory_of_the_device_is_raised(encoder, texts, cuda):
    with pytest.raises(torch.OutOfMemoryError):
        encode_texts(DeviceEncoder(encoder, cuda, capacity=3), texts)


def test_encoder_on_a_cpu_has_nothing_in_flight(bert_folder):
    encoder = Encoder.load(bert_folder, threads=3)
    assert (encoder.max_in_flight, encoder.num_parallel) == (0, 3)


def test_upload_to_a_cpu_copies_nothing():
    array = np.arange(3)
    tensor = upload(array, torch.device("cpu"))
    array[0] = 9
    assert tensor.tolist() == [9, 1, 2]
