"""Text -> token ids.

In:  valid texts (see sbert_core.text) with their prompt already in front.
Out: Tokens: ids cut to the model's length, special tokens included, and what the cut lost.
"""

import json
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import Lowercase, Sequence
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of one text."""

    ids: np.ndarray
    num_lost: int = 0
    num_unknown: int = 0
    reason: str | None = None  # why there are none


@dataclass(frozen=True, slots=True)
class TokenPlaces:
    """Of each token of a whole text, special tokens left out: its characters and its word."""

    spans: list[tuple[int, int]]
    words: list[int | None]


class TextTokenizer:
    """A fast tokenizer of its own, so that nobody else's padding or truncation changes ours."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int,
        vocab_size: int,
        lower_case: bool = False,
    ) -> None:
        self._fast = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        if lower_case:
            self._fast.normalizer = _lowered(self._fast.normalizer)
        self._fast.no_padding()
        self._fast.no_truncation()
        self.identity = json.loads(self._fast.to_str())
        self._whole = Tokenizer.from_str(self._fast.to_str())
        self.num_special = self._fast.num_special_tokens_to_add(is_pair=False)
        if max_length <= self.num_special:
            raise ValueError(
                f"max_length {max_length} leaves no room for text beside the "
                f"{self.num_special} special tokens; use at least {self.num_special + 1}"
            )
        self.max_length = max_length
        self.truncation_side = tokenizer.truncation_side
        self._fast.enable_truncation(max_length, direction=self.truncation_side)
        self.vocab_size = vocab_size
        self.unknown_id = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
        self.special_ids = frozenset(tokenizer.all_special_ids)
        self.pad_id = tokenizer.pad_token_id or 0

    def __call__(self, texts: list[str]) -> list[Tokens]:
        """Tokens of each text, in order. Runs in Rust on all cores and releases the GIL."""
        try:
            return [self._tokens(encoding) for encoding in self._fast.encode_batch_fast(texts)]
        except Exception as error:  # noqa: BLE001 - tokenizers raises nothing more precise
            if len(texts) == 1:
                return [Tokens(np.empty(0, np.int64), reason=f"the tokenizer failed: {error}")]
            return [tokens for text in texts for tokens in self([text])]

    def _tokens(self, encoding: Encoding) -> Tokens:
        ids = np.array(encoding.ids, dtype=np.int64)
        if ids.max(initial=0) >= self.vocab_size:
            reason = f"token id {ids.max()} is beyond the model's vocabulary of {self.vocab_size}"
            return Tokens(np.empty(0, np.int64), reason=reason)
        return Tokens(
            ids=ids,
            num_lost=sum(len(rest.ids) - self.num_special for rest in encoding.overflowing),
            num_unknown=int(np.count_nonzero(ids == self.unknown_id)),
        )

    def places(self, text: str) -> TokenPlaces:
        """Where the tokens of a text of any length stand in it."""
        encoding = self._whole.encode(text, add_special_tokens=False)
        return TokenPlaces(encoding.offsets, encoding.word_ids)

    def num_prompt_tokens(self, prompt: str) -> int:
        """Leading tokens that belong to the prompt, the opening special token included."""
        if not prompt:
            return 0
        ids = self._fast.encode(prompt).ids
        return len(ids) - (ids[-1] in self.special_ids)


def _lowered(normalizer: object) -> Sequence:
    """The normalizer with lower-casing in front, as sentence-transformers does it."""
    if normalizer is None:
        return Sequence([Lowercase()])
    return Sequence([Lowercase(), normalizer])
