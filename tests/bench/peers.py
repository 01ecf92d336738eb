"""Other ways to embed texts, as a careful user would run them: length-sorted padded batches.

In:  a model, and a number format where the peer has several.
Out: a function from texts to unit vectors for each batch size; the caller takes the fastest.

ONNX Runtime has no bfloat16 products on CPUs, so there is no such peer.
"""

import queue
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from peer_graphs import MAX_LENGTH
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as hf_logging

from sbert_core.encoder.encode import restore_torch_threads
from sbert_core.threads import parallel_for

BATCH_SIZES = (8, 16, 32, 64, 128)
Embed = Callable[[list[str]], np.ndarray]
Runs = dict[int, Embed]  # by batch size
States = Callable[[np.ndarray, np.ndarray], np.ndarray]  # token ids, mask -> last hidden states


def silence_libraries() -> None:
    """No progress bars, which our loader turns on again, and no notes on later versions."""
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    for kind in (DeprecationWarning, FutureWarning, UserWarning):
        warnings.simplefilter("ignore", kind)


# -- sentence-transformers -------------------------------------------------------------------------


def sentence_transformers(model: Path, dtype: torch.dtype = torch.float32) -> Runs:
    """SentenceTransformer.encode, the whole model in one number format."""
    return _sentence_transformers_runs(_sentence_transformer(model, dtype))


def torch_dynamic_int8(model: Path) -> Runs:
    """The same with torch's dynamic quantisation of the linear layers.

    Weights per channel: per tensor, torch's default, is as fast and loses more.
    """
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    encoder = _sentence_transformer(model)
    quantize_dynamic(encoder, {torch.nn.Linear: per_channel_dynamic_qconfig}, inplace=True)
    return _sentence_transformers_runs(encoder)


def torchao_int8(model: Path) -> Runs:
    """The same with torchao, the successor: scales per channel and per row."""
    return _sentence_transformers_runs(_torchao_encoder(model))


def compiled_torchao_int8(model: Path) -> Runs:
    """The same compiled, as torchao recommends: needs a C++ compiler and minutes to start."""
    encoder = _torchao_encoder(model)
    encoder[0].compile(dynamic=True)
    return _sentence_transformers_runs(encoder)


def _torchao_encoder(model: Path):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    encoder = _sentence_transformer(model)
    quantize_(encoder, Int8DynamicActivationInt8WeightConfig())
    return encoder


def _sentence_transformer(model: Path, dtype: torch.dtype = torch.float32):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(model), device="cpu", model_kwargs={"dtype": dtype})


def _sentence_transformers_runs(encoder) -> Runs:
    def embed(texts: list[str], batch_size: int) -> np.ndarray:
        return encoder.encode(
            texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )

    return {size: partial(embed, batch_size=size) for size in BATCH_SIZES}


# -- runtimes of graphs ----------------------------------------------------------------------------


def onnx_runtime(model: Path, graph: Path, num_at_once: int = 1) -> Runs:
    """A graph in ONNX Runtime with all optimisations; several batches at once share the threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, torch.get_num_threads() // num_at_once)
    session = onnxruntime.InferenceSession(str(graph), options)

    def states(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return _sorted_batches(model, states, num_at_once)


def openvino(model: Path, graph: Path, precision: str = "f32", num_at_once: int = 1) -> Runs:
    """A graph in OpenVINO; `precision` is that of all products the graph has not quantised."""
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY" if num_at_once == 1 else "THROUGHPUT",
    }
    if num_at_once > 1:
        settings["NUM_STREAMS"] = num_at_once
    compiled = core.compile_model(core.read_model(graph), "CPU", settings)
    requests = queue.SimpleQueue()  # a request computes one batch at a time
    for _ in range(num_at_once):
        requests.put(compiled.create_infer_request())

    def states(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        request = requests.get()
        try:
            return request.infer({"input_ids": ids, "attention_mask": mask}, share_inputs=True)[0]
        finally:
            requests.put(request)

    return _sorted_batches(model, states, num_at_once)


def count_tokens(model: Path, texts: list[str]) -> int:
    """Tokens that a model sees of the texts, special ones included."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    return sum(map(len, ids))


def _sorted_batches(model: Path, states: States, num_at_once: int) -> Runs:
    """Tokenise, sort by length, pad, run, average, normalise."""
    tokenizer = AutoTokenizer.from_pretrained(model)

    def embed(texts: list[str], batch_size: int) -> np.ndarray:
        ids = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        units: dict[int, np.ndarray] = {}

        def embed_batch(start: int) -> None:
            rows = order[start : start + batch_size]
            padded = np.zeros((len(rows), len(ids[rows[0]])), dtype=np.int64)
            mask = np.zeros_like(padded)
            for line, row in enumerate(rows):
                padded[line, : len(ids[row])] = ids[row]
                mask[line, : len(ids[row])] = 1
            weight = mask[:, :, None].astype(np.float32)
            mean = (states(padded, mask) * weight).sum(1) / weight.sum(1)
            units[start] = mean / np.linalg.norm(mean, axis=1, keepdims=True)

        starts = range(0, len(order), batch_size)
        parallel_for(embed_batch, starts, num_at_once)
        in_order = np.concatenate([units[start] for start in starts])
        out = np.empty_like(in_order)
        out[order] = in_order
        return out

    return {size: partial(embed, batch_size=size) for size in BATCH_SIZES}


# -- what the processor could do -------------------------------------------------------------------


def matmul_limit(
    model: Path, num_tokens: int, num_rows: int, num_at_once: int
) -> Callable[[list[str]], None]:
    """The model's linear layers on as many tokens, and nothing else: no attention, no norm.

    Blocks of rows one after the other on all of torch's threads, or `num_at_once` side by side
    on one thread each.
    """
    modules = AutoModel.from_pretrained(model, add_pooling_layer=False).modules()
    weights = [m.weight.detach() for m in modules if isinstance(m, torch.nn.Linear)]
    inputs = {w.shape[1]: torch.randn(num_rows, w.shape[1]) for w in weights}
    blocks = [num_rows] * (num_tokens // num_rows) + [num_tokens % num_rows]
    num_threads = torch.get_num_threads() // num_at_once

    def products(rows: int) -> None:
        torch.set_num_threads(num_threads)
        for weight in weights:
            F.linear(inputs[weight.shape[1]][:rows], weight)

    def run(texts: list[str]) -> None:
        with restore_torch_threads():
            parallel_for(products, blocks, num_at_once)

    return run
