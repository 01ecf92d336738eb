"""A model -> graph files for ONNX Runtime and OpenVINO, in float32 and in their int8 forms.

In:  the folder of a model, and a few hundred sentences where a recipe calibrates.
Out: files in a folder; one that is there is not made again, so a benchmark that goes on after an
     interruption runs the very graphs it began with.

The recipes are the vendors' own. Dynamic int8 of ONNX Runtime has the settings that
sentence-transformers' export_dynamic_quantized_onnx_model calls avx512_vnni. Static int8 of
OpenVINO is nncf.quantize with its defaults for a transformer: 300 samples, SmoothQuant, fast bias
correction. Tried on 80 sentences and left out: fusing the graph with onnxruntime.transformers
before quantising (finds no attention in it; 10 % slower), the slow bias correction of NNCF (no
faster; least cosine 0.985 where the fast one has 0.995).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from sbert_core.digest import digest, file_digest, folder_digest

MAX_LENGTH = 256
NUM_CALIBRATION = 300
# What Optimum quantises for processors with VNNI; the graph has three of them.
DYNAMIC_OPERATORS = [
    "Conv",
    "MatMul",
    "Attention",
    "LSTM",
    "Gather",
    "Transpose",
    "EmbedLayerNormalization",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graphs:
    """The graphs of a model, made when they are first asked for."""

    model: Path
    folder: Path
    calibration: tuple[str, ...] = ()

    def float32(self) -> Path:
        """ONNX, as exported by torch."""
        return self._make("float32.onnx", self._export)

    def dynamic_int8(self) -> Path:
        """ONNX: weights per channel, activations by the range of each batch."""
        return self._make("dynamic-int8.onnx", self._quantize_dynamic)

    def static_int8(self) -> Path:
        """ONNX: weights per channel, activations by the ranges of the calibration."""
        return self._make("static-int8.onnx", self._quantize_static)

    def openvino_int8(self) -> Path:
        """OpenVINO's own format: NNCF's post-training quantisation."""
        return self._make("nncf-int8.xml", self._quantize_nncf)

    def in_own_folder(self) -> "Graphs":
        """The same in a folder that no other model, calibration or recipe has."""
        name = f"graphs-{digest({**self.identity(), 'versions': _versions()})[:12]}"
        return replace(self, folder=self.folder / name)

    def identity(self) -> dict[str, str]:
        """What the graphs depend on, beside the versions of the libraries."""
        return {
            "model": folder_digest(self.model),
            "calibration": digest({"texts": list(self.calibration)}),
            "recipe": file_digest(Path(__file__)),
        }

    def _make(self, name: str, write: Callable[[Path], None]) -> Path:
        path = self.folder / name
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            part = path.with_stem(f"{path.stem}-part")
            write(part)
            if part.with_suffix(".bin").is_file():  # the weights of a graph in OpenVINO's format
                part.with_suffix(".bin").replace(path.with_suffix(".bin"))
            part.replace(path)
        return path

    def _export(self, path: Path) -> None:
        example = torch.ones(2, 8, dtype=torch.long)
        axes = {0: "batch", 1: "length"}
        torch.onnx.export(
            _States(self.model),
            (example, example),
            str(path),
            input_names=["input_ids", "attention_mask"],
            dynamic_axes={"input_ids": axes, "attention_mask": axes},
            dynamo=False,  # the newer exporter's graph is off by 2.8 (torch 2.13, onnxscript 0.7)
        )

    def _simplified(self) -> Path:
        """The graph after ONNX Runtime's preparation for quantising."""
        from onnxruntime.quantization.shape_inference import quant_pre_process

        def write(path: Path) -> None:
            # Its symbolic shapes give up on the position embeddings: min(512, length).
            quant_pre_process(str(self.float32()), str(path), skip_symbolic_shape=True)

        return self._make("simplified.onnx", write)

    def _quantize_dynamic(self, path: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            str(self._simplified()),
            str(path),
            op_types_to_quantize=DYNAMIC_OPERATORS,
            per_channel=True,
            weight_type=QuantType.QInt8,
        )

    def _quantize_static(self, path: Path) -> None:
        from onnxruntime.quantization import (
            CalibrationDataReader,
            QuantFormat,
            QuantType,
            quantize_static,
        )

        class Reader(CalibrationDataReader):
            def __init__(self, feeds: Iterator[dict[str, np.ndarray]]) -> None:
                self.feeds = feeds

            def get_next(self) -> dict[str, np.ndarray] | None:
                return next(self.feeds, None)

        # Ranges are the least and largest values: the other methods of ONNX Runtime need all
        # calibration texts padded to one length.
        quantize_static(
            str(self._simplified()),
            str(path),
            Reader(self._calibration_feeds()),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )

    def _quantize_nncf(self, path: Path) -> None:
        import nncf
        import openvino

        quantized = nncf.quantize(
            openvino.Core().read_model(self.float32()),
            nncf.Dataset(list(self._calibration_feeds())),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=NUM_CALIBRATION,
        )
        openvino.save_model(quantized, path, compress_to_fp16=False)

    def _calibration_feeds(self) -> Iterator[dict[str, np.ndarray]]:
        if not self.calibration:
            raise ValueError("a static int8 graph is calibrated on texts and none were given")
        tokenizer = AutoTokenizer.from_pretrained(self.model)
        for text in self.calibration:
            ids = tokenizer(text, truncation=True, max_length=MAX_LENGTH)["input_ids"]
            ids_1T = np.array([ids], dtype=np.int64)
            yield {"input_ids": ids_1T, "attention_mask": np.ones_like(ids_1T)}


def _versions() -> dict[str, str]:
    makers = ("torch", "transformers", "onnx", "onnxruntime", "openvino", "nncf")
    return {package: version(package) for package in makers}


class _States(torch.nn.Module):
    """The encoder as a graph with one output."""

    def __init__(self, model: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(model, attn_implementation="eager").eval()

    def forward(self, input_ids, attention_mask):
        scores = (attention_mask[:, None, None, :].float() - 1.0) * 1e30
        return self.encoder(input_ids=input_ids, attention_mask=scores).last_hidden_state
