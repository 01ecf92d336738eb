"""The model of a run: resolved once by the driver, the same for all its actors."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.artifacts.models import local_model
from pipelines.embed.spec import EmbedSpec
from sbert_core.encoder import Encoder
from sbert_core.encoder.chunking import Long
from sbert_core.encoder.documents import Documents, encoded_documents
from workers.embed.actor import EncoderSetup


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
