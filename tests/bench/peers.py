"""Other ways to embed texts, as a careful user would run them: length-sorted padded batches."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoTokenizer

from sbert_core.encoder.encode import restore_torch_threads
from sbert_core.threads import parallel_for

Embed = Callable[[list[str]], np.ndarray]
MAX_LENGTH = 256


def sentence_transformers(model: Path, batch_size: int) -> Embed:
    """SentenceTransformer.encode with this batch size."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu")
    return lambda texts: encoder.encode(
        texts, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
    )


def onnx_runtime(model: Path, batch_size: int) -> Embed:
    """The exported graph in ONNX Runtime with all optimisations."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(_onnx_file(model)), _all_threads(onnxruntime))

    def states(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    return _sorted_batches(model, batch_size, states)


def openvino(model: Path, batch_size: int) -> Embed:
    """The same graph in OpenVINO, float32."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(_onnx_file(model)),
        "CPU",
        {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"},
    )

    def states(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return compiled({"input_ids": ids, "attention_mask": mask})[0]

    return _sorted_batches(model, batch_size, states)


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


def _all_threads(onnxruntime):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return options


_EXPORTED: dict[Path, Path] = {}


class _States(torch.nn.Module):
    """The encoder as a graph with one output."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

    def forward(self, input_ids, attention_mask):
        scores = (attention_mask[:, None, None, :].float() - 1.0) * 1e30
        return self.encoder(input_ids=input_ids, attention_mask=scores).last_hidden_state


def _onnx_file(model: Path) -> Path:
    if model not in _EXPORTED:
        path = Path(tempfile.mkdtemp(prefix="bench-onnx-")) / "model.onnx"
        example = torch.ones(2, 8, dtype=torch.long)
        axes = {0: "batch", 1: "length"}
        torch.onnx.export(
            _States(model),
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes},
            dynamo=False,  # the newer exporter's graph is off by 2.8 (torch 2.13, onnxscript 0.7)
        )
        _EXPORTED[model] = path
    return _EXPORTED[model]


def _sorted_batches(
    model: Path, batch_size: int, states: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Embed:
    """Tokenise, sort by length, pad, run, average, normalise."""
    tokenizer = AutoTokenizer.from_pretrained(model)

    def embed(texts: list[str]) -> np.ndarray:
        ids = tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        out: np.ndarray | None = None
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            padded = np.zeros((len(rows), len(ids[rows[0]])), dtype=np.int64)
            mask = np.zeros_like(padded)
            for line, row in enumerate(rows):
                padded[line, : len(ids[row])] = ids[row]
                mask[line, : len(ids[row])] = 1
            weight = mask[:, :, None].astype(np.float32)
            mean = (states(padded, mask) * weight).sum(1) / weight.sum(1)
            out = np.empty((len(texts), mean.shape[1]), np.float32) if out is None else out
            out[rows] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        assert out is not None
        return out

    return embed
