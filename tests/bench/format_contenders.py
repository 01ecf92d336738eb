"""Our encoder and its peers in each number format, loaded when first run.

ONNX Runtime has no bfloat16 products on CPUs and stays out of that row. OpenVINO computes what its
int8 graph leaves open in bfloat16 by default where the processor has it; both ways are listed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path

import peers
import torch
from peer_graphs import Graphs

from sbert_core.choices import Precision
from sbert_core.digest import digest, file_digest, folder_digest
from sbert_core.encoder.encoder import Encoder

OURS = "sbert-mill"
ROOT = Path(__file__).parent.parent.parent
Runs = dict[str, peers.Embed]  # by the way: batch size, batches at once


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One encoder in one number format."""

    encoder: str
    precision: Precision
    form: str = ""  # where an encoder has several of the same width
    load: Callable[[], Runs]
    identity: dict[str, object]

    @property
    def name(self) -> str:
        form = f" ({self.form})" if self.form else ""
        return f"{self.encoder} {self.precision}{form}"

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def is_ours(self) -> bool:
        return self.encoder == OURS

    @cached_property
    def runs(self) -> Runs:
        """The ways to run it; loading takes seconds, quantising and compiling minutes."""
        peers.silence_libraries()
        return self.load()


def make_contenders(graphs: Graphs) -> list[Contender]:
    """Ours first, then each peer; nothing is loaded yet."""
    return [
        *_our_contenders(graphs.model),
        *_torch_contenders(graphs),
        *_onnx_contenders(graphs),
        *_openvino_contenders(graphs),
    ]


def _our_contenders(model: Path) -> list[Contender]:
    # Our version does not change with every line, so the code itself is part of the identity.
    identity = {
        "model": folder_digest(model),
        "code": _code_digest(ROOT / "sbert_core"),
        "versions": _versions("torch", "transformers", "tokenizers", "numpy"),
    }

    def load(precision: Precision) -> Runs:
        return {"": Encoder.load(model, precision=precision).encode}

    return [
        Contender(encoder=OURS, precision=one, load=partial(load, one), identity=identity)
        for one in (Precision.FLOAT32, Precision.BFLOAT16, Precision.INT8)
    ]


def _torch_contenders(graphs: Graphs) -> list[Contender]:
    model = graphs.model
    make = partial(
        Contender,
        encoder="sentence-transformers",
        identity=_peer_identity(graphs, "sentence-transformers", "torch", "torchao"),
    )

    def load(recipe: Callable[..., peers.Runs], *arguments: object) -> Callable[[], Runs]:
        return lambda: _by_batch_size(recipe(model, *arguments))

    return [
        make(precision=Precision.FLOAT32, load=load(peers.sentence_transformers)),
        make(precision=Precision.BFLOAT16, load=load(peers.sentence_transformers, torch.bfloat16)),
        make(precision=Precision.INT8, form="torch dynamic", load=load(peers.torch_dynamic_int8)),
        make(precision=Precision.INT8, form="torchao", load=load(peers.torchao_int8)),
        make(
            precision=Precision.INT8,
            form="torchao compiled",
            load=load(peers.compiled_torchao_int8),
        ),
    ]


def _onnx_contenders(graphs: Graphs) -> list[Contender]:
    make = partial(
        Contender,
        encoder="ONNX Runtime",
        identity=_peer_identity(graphs, "onnxruntime", "onnx", "torch"),
    )

    def load(make_graph: Callable[[], Path]) -> Callable[[], Runs]:
        return lambda: _side_by_side(partial(peers.onnx_runtime, graphs.model, make_graph()))

    return [
        make(precision=Precision.FLOAT32, load=load(graphs.float32)),
        make(precision=Precision.INT8, form="dynamic", load=load(graphs.dynamic_int8)),
        make(precision=Precision.INT8, form="static", load=load(graphs.static_int8)),
    ]


def _openvino_contenders(graphs: Graphs) -> list[Contender]:
    make = partial(
        Contender,
        encoder="OpenVINO",
        identity=_peer_identity(graphs, "openvino", "nncf", "onnx", "torch"),
    )

    def load(make_graph: Callable[[], Path], precision: str) -> Callable[[], Runs]:
        return lambda: _side_by_side(partial(peers.openvino, graphs.model, make_graph(), precision))

    return [
        make(precision=Precision.FLOAT32, load=load(graphs.float32, "f32")),
        make(precision=Precision.BFLOAT16, load=load(graphs.float32, "bf16")),
        make(
            precision=Precision.INT8,
            form="NNCF, rest float32",
            load=load(graphs.openvino_int8, "f32"),
        ),
        make(
            precision=Precision.INT8,
            form="NNCF, rest bfloat16",
            load=load(graphs.openvino_int8, "bf16"),
        ),
    ]


def _side_by_side(make: Callable[..., peers.Runs]) -> Runs:
    """One batch on all threads, and as many batches as threads."""
    runs = _by_batch_size(make())
    if (threads := torch.get_num_threads()) > 1:
        several = _by_batch_size(make(num_at_once=threads))
        runs |= {f"{way}, {threads} at once": embed for way, embed in several.items()}
    return runs


def _by_batch_size(runs: peers.Runs) -> Runs:
    return {f"batch {size}": embed for size, embed in runs.items()}


def _peer_identity(graphs: Graphs, *packages: str) -> dict[str, object]:
    return {
        **graphs.identity(),
        "code": file_digest(Path(peers.__file__)),
        "versions": _versions(*packages, "transformers", "tokenizers", "numpy"),
    }


def _code_digest(package: Path) -> str:
    files = sorted(package.rglob("*.py"))
    return digest({str(path.relative_to(package)): file_digest(path) for path in files})


def _versions(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}
