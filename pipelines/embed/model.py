"""The model of a run: resolved once by the driver, the same for all actors."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.artifacts.models import resolve_model
from pipelines.embed.spec import EmbedSpec
from sbert_core.choices import LongTexts, Precision
from sbert_core.encoder.documents import DocumentVectors, encode_documents
from sbert_core.encoder.encoder import Encoder
from workers.embed.encoder_config import EncoderConfig


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on the driver, with its fingerprints. Actors load the same folder."""

    folder: str
    encoder: Encoder
    prompt: str
    long: LongTexts
    threads: int
    precision: Precision
    space: str
    recipe: str

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""
        return self.encoder.dim

    @property
    def max_length(self) -> int:
        """Tokens of a text at most."""
        return self.encoder.max_length

    def encode(self, texts: Sequence[object]) -> DocumentVectors:
        """Vectors of texts, as actors make them."""
        return encode_documents(self.encoder, texts, long=self.long, prompt=self.prompt)

    def config(self, place: str, precision: Precision, device: str | None = None) -> EncoderConfig:
        """What an actor needs to load this model from the folder or URI `place`.

        precision: the format that actors compute in, or the word to find it by. device: the kind
        they must have; that of the first one by default.
        """
        return EncoderConfig(
            model=place,
            recipe=self.recipe,
            prompt=self.prompt,
            long=self.long,
            max_length=self.encoder.max_length,
            truncate_dim=self.encoder.truncate_dim,
            token_budget=None,
            precision=precision,
            wanted_precision=self.precision,
            threads=self.threads,
            device=device,
        )


def load_model(spec: EmbedSpec) -> ResolvedModel:
    """Resolve the name or path of a model, load it and compute its space and recipe.

    The driver has it in float32 whatever the actors' format: it only plans and samples.
    """
    folder = resolve_model(spec.model)
    encoder = Encoder.load(folder, max_length=spec.max_length, truncate_dim=spec.truncate_dim)
    long = spec.long
    prompt = spec.prompt if spec.prompt is not None else encoder.document_prompt
    return ResolvedModel(
        folder=folder,
        encoder=encoder,
        prompt=prompt,
        long=long,
        threads=spec.cpus_per_actor,
        precision=spec.precision,
        space=encoder.space(),
        recipe=encoder.recipe(prompt=prompt, long=long, precision=spec.precision),
    )
