"""The measurement of a GPU, on a CPU."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel

from pipelines.doctor.gpu import read_model_files
from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.json_record import encode
from workers.doctor.gpu import flops_per_token, largest_deviation, measure_gpu, peak_flops


@pytest.mark.slow
def test_measure_gpu_on_a_cpu_finds_no_deviation_and_a_speed(bert_folder, texts):
    report = measure_gpu(
        read_model_files(bert_folder), texts, "cpu", (Precision.AUTO,), seconds=0.3
    )
    own = report.float32
    assert (report.device, report.texts, report.bfloat16) == ("cpu", len(texts), None)
    assert own.compared_texts == len(texts)
    assert 0 <= own.largest_cosine_deviation < 1e-6
    assert own.tokens_per_second > 100
    assert own.tokens_per_second_with_waits > 100
    assert own.is_equal_with_waits
    assert own.share_of_peak > 0
    assert own.share_of_time_in_batches > 0
    assert own.utilization is None
    assert list(encode(report)) == ["device", "torch", "transformers", "texts", "float32"]


def test_peak_flops_counts_whole_products():
    assert peak_flops("cpu", torch.float32, 0.05) >= 2 * 512**3


def test_largest_deviation_is_that_of_the_worst_vector():
    wanted = np.eye(3)
    found = np.eye(3)
    found[1] = [0.6, 0.8, 0.0]
    assert largest_deviation(wanted, found) == pytest.approx(0.2)
    found[2] = np.nan
    assert largest_deviation(wanted, found) == 2.0


def test_flops_per_token_are_those_torch_counts(bert_folder):
    length = 40
    plain = AutoModel.from_pretrained(bert_folder, attn_implementation="eager")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        plain(torch.full((1, length), 7))
    pooler = 2 * plain.config.hidden_size**2
    counted = (counter.get_total_flops() - pooler) / length
    encoder = Encoder.load(bert_folder, device="cpu")
    assert flops_per_token(encoder, np.array([length])) == pytest.approx(counted, rel=1e-6)
