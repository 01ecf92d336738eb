"""A tiny static model, built here."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from support.encoders import tiny_tokenizer


def write_static_model(folder: Path) -> Path:
    """A folder as model2vec saves it, with random embeddings of 16 numbers."""
    folder.mkdir(parents=True)
    weights = torch.randn(160, 16, generator=torch.Generator().manual_seed(0))
    save_file({"embeddings": weights}, folder / "model.safetensors")
    tiny_tokenizer().backend_tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')
    return folder
