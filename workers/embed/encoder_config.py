"""The encoder of an embed job, as every process of it loads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbert_core.choices import LongTexts, Precision
from sbert_core.encoder.documents import (
    DocumentVectors,
    TokenizedDocuments,
    encode_documents,
    tokenize_documents,
)
from sbert_core.encoder.encode import Progress
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.load_tokenizer import load_tokenizer
from sbert_core.encoder.tokenizer import TextTokenizer
from workers.common.model_cache import fetch_model


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """How every actor of a job loads the model, and the recipe it must have.

    wanted_precision: the word that was given, which the recipe hashes; precision: what it became.
    device: the kind that earlier attempts at the job have used, if there were any.
    """

    model: str
    recipe: str
    prompt: str
    long: LongTexts
    max_length: int
    truncate_dim: int | None
    token_budget: int | None
    precision: Precision
    wanted_precision: Precision
    threads: int
    device: str | None = None

    def load(self) -> Encoder:
        """Load the encoder; ValueError if the model is not the one of the job any more."""
        encoder = Encoder.load(
            fetch_model(self.model),
            precision=self.precision,
            max_length=self.max_length,
            truncate_dim=self.truncate_dim,
            token_budget=self.token_budget,
            threads=self.threads,
        )
        recipe = encoder.recipe(prompt=self.prompt, long=self.long, precision=self.wanted_precision)
        if recipe != self.recipe:
            raise ValueError(f"the model in {self.model} changed since the job began; start again")
        return encoder

    def load_tokenizer(self) -> TextTokenizer:
        """The encoder's tokenizer, without its weights."""
        return load_tokenizer(Path(fetch_model(self.model)), self.max_length)

    def encode(
        self, encoder: Encoder, texts: Sequence[object], progress: Progress | None = None
    ) -> DocumentVectors:
        """Vectors of texts, with the job's prompt and its way with long texts."""
        return encode_documents(
            encoder, texts, long=self.long, prompt=self.prompt, progress=progress
        )

    def tokenize(self, tokenizer: TextTokenizer, texts: Sequence[object]) -> TokenizedDocuments:
        """The first half of `encode`."""
        return tokenize_documents(tokenizer, texts, self.long, self.prompt)

    def encode_tokens(
        self, encoder: Encoder, tokens: TokenizedDocuments, progress: Progress | None = None
    ) -> DocumentVectors:
        """The second half of `encode`: the same vectors, bit for bit."""
        encoded = encoder.encode_windows(
            tokens.tables, tokens.num_distinct, prompt=self.prompt, progress=progress
        )
        return tokens.join(encoded, self.long)
