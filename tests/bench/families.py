"""Model families: layout, distance from their own padded forward, loss of each number format.

    python tests/bench/families.py

Tiny models with random weights (tests/support/encoders.py), texts of 1 to 60 tokens; random weights
are less forgiving than trained ones. Prints a Markdown table.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from support.encoders import FAMILIES, WORDS, tiny_model, tiny_tokenizer
from transformers.utils import logging as hf_logging

from sbert_core.choices import Precision
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.instructions import why_unsupported

NARROW = [own for own in (Precision.BFLOAT16, Precision.INT8) if why_unsupported(own) is None]
NUM_TEXTS = 200


def main() -> None:
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size)) for size in rng.integers(1, 60, NUM_TEXTS)]
    narrow = "".join(f" least cosine in {own} |" for own in NARROW)
    print(f"| family | layout | bits depend on the text alone | from its own forward |{narrow}")
    print("|---|---|---|---:|" + "---:|" * len(NARROW))
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            tiny_model(family).save_pretrained(folder)
            tiny_tokenizer().save_pretrained(folder)
            print(row(family, folder, texts), flush=True)


def row(family: str, folder: str, texts: list[str]) -> str:
    """A line of the table."""
    encoder = Encoder.load(folder)
    vectors = encoder.encode(texts)
    distance = np.abs(vectors - padded_vectors(family, texts)).max()
    cosines = [
        (Encoder.load(folder, precision=own).encode(texts) * vectors).sum(1).min() for own in NARROW
    ]
    cells = "".join(f" {cos:.4f} |" for cos in cosines)
    answer = "yes" if encoder.batch_invariant else "no"
    return f"| {family} | {encoder.layout} | {answer} | {distance:.0e} |{cells}"


@torch.no_grad()
def padded_vectors(family: str, texts: list[str]) -> np.ndarray:
    """Unit means over one padded forward of the unmodified model."""
    inputs = tiny_tokenizer()(
        texts, padding=True, truncation=True, return_tensors="pt", return_token_type_ids=False
    )
    states = tiny_model(family)(**inputs).last_hidden_state
    weight = inputs["attention_mask"][:, :, None]
    return torch.nn.functional.normalize((states * weight).sum(1), dim=1).numpy()


if __name__ == "__main__":
    main()
