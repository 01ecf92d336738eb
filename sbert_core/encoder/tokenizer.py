"""Text -> token ids.

In:  valid texts (see sbert_core.text) with their prompt already in front.
Out: Tokens: ids truncated to the model's length, special tokens included, and how many were lost.
"""

import json
from dataclasses import dataclass

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import Lowercase, Sequence
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids of one text.

    num_lost: tokens that truncation removed. num_unknown: tokens outside the vocabulary.
    reason: why the text could not be tokenised; then `ids` is empty.
    """

    ids: np.ndarray
    num_lost: int = 0
    num_unknown: int = 0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TokenSpans:
    """Characters and word number of each token of an untruncated text, without special tokens."""

    spans: list[tuple[int, int]]
    words: list[int | None]


class TextTokenizer:
    """A copy of a fast tokenizer, so that padding or truncation set elsewhere has no effect.

    max_length: tokens of a text, special tokens included. vocab_size: rows of the embedding.
    lower_case: lower-case texts first, as older sentence-transformers folders request.
    """

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
            self._fast.normalizer = _lower_case_first(self._fast.normalizer)
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
        """Tokens of each text, in order. Runs in Rust on all cores and releases the GIL.

        A text the tokenizer fails on has a reason instead of ids; the others are not affected.
        """
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

    def token_spans(self, text: str) -> TokenSpans:
        """Characters and words of the tokens of a text of any length."""
        encoding = self._whole.encode(text, add_special_tokens=False)
        return TokenSpans(encoding.offsets, encoding.word_ids)

    def num_prompt_tokens(self, prompt: str) -> int:
        """Number of leading tokens of the prompt, the opening special token included."""
        if not prompt:
            return 0
        ids = self._fast.encode(prompt).ids
        return len(ids) - (ids[-1] in self.special_ids)


def _lower_case_first(normalizer: object) -> Sequence:
    """The normalizer with lower-casing in front, as sentence-transformers does it."""
    if normalizer is None:
        return Sequence([Lowercase()])
    return Sequence([Lowercase(), normalizer])
