"""Texts -> token ids.

In:  valid texts (see sbert_core.text) with their prompt already in front.
Out: TokenTable: ids truncated to the model's length, special tokens included, end to end in one
     array, and how many were lost. There is no Python object per text.
"""

import json
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter

import numpy as np
from tokenizers import Encoding, Tokenizer
from tokenizers.normalizers import Lowercase, Sequence
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token ids of texts, end to end.

    lengths: tokens of each text. num_lost: tokens that truncation removed from it. num_unknown:
    tokens of all texts outside the vocabulary. reasons: why a text could not be tokenised, by its
    number; then it has no tokens.
    """

    ids_T: np.ndarray
    lengths: np.ndarray
    num_lost: np.ndarray
    num_unknown: int = 0
    reasons: dict[int, str] = field(default_factory=dict)

    def split(self) -> list[np.ndarray]:
        """The token ids of each text."""
        return np.split(self.ids_T, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def without(self, reasons: dict[int, str]) -> "TokenTable":
        """The table without the tokens of texts that cannot be encoded, and why they cannot."""
        if not reasons:
            return self
        is_fine = np.ones(len(self.lengths), bool)
        is_fine[list(reasons)] = False
        return replace(
            self,
            ids_T=self.take(np.flatnonzero(is_fine)),
            lengths=self.lengths * is_fine,
            num_lost=self.num_lost * is_fine,
            reasons=self.reasons | reasons,
        )

    def take(self, texts: np.ndarray) -> np.ndarray:
        """Token ids of these texts, in this order, end to end."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[texts]
        # Numbers of the tokens: each text's start, plus 0, 1, 2 ... within it.
        shift = starts[texts] - (np.cumsum(lengths) - lengths)
        taken = self.ids_T[np.arange(lengths.sum()) + np.repeat(shift, lengths)]
        ids_T: np.ndarray = taken.astype(np.int64, copy=False)
        return ids_T

    def packed(self) -> "TokenTable":
        """The same with ids of two bytes, or four where the vocabulary is larger."""
        largest = int(self.ids_T.max(initial=0))
        return replace(self, ids_T=self.ids_T.astype(np.min_scalar_type(max(largest, 256))))


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

    def tokenize(self, texts: list[str]) -> TokenTable:
        """Tokens of each text, in order. Runs in Rust and releases the GIL.

        A text the tokenizer fails on has a reason instead of ids; the others are not affected.
        """
        try:
            return self._table(self._fast.encode_batch_fast(texts))
        except Exception as error:  # noqa: BLE001 - tokenizers raises nothing more precise
            if len(texts) == 1:
                reason = f"the tokenizer failed: {error}"
                nothing = np.zeros(1, np.int64)
                return TokenTable(np.empty(0, np.int64), nothing, nothing, reasons={0: reason})
            return _join([self.tokenize([text]) for text in texts])

    def _table(self, encodings: list[Encoding]) -> TokenTable:
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        # One list of ids at a time: all of them at once cost a third more.
        ids = chain.from_iterable(map(attrgetter("ids"), encodings))
        ids_T = np.fromiter(ids, np.int64, int(lengths.sum()))
        num_lost = np.zeros(len(encodings), np.int64)
        for text in np.flatnonzero(lengths >= self.max_length).tolist():
            rest = encodings[text].overflowing
            num_lost[text] = sum(len(part) - self.num_special for part in rest)
        table = TokenTable(
            ids_T=ids_T,
            lengths=lengths,
            num_lost=num_lost,
            num_unknown=int(np.count_nonzero(ids_T == self.unknown_id)),
        )
        return table if ids_T.max(initial=0) < self.vocab_size else self._without_foreign(table)

    def _without_foreign(self, table: TokenTable) -> TokenTable:
        """The table without texts that have a token id the model has no embedding for."""
        largest = [int(ids.max(initial=0)) for ids in table.split()]
        reasons = {
            text: f"token id {token} is beyond the model's vocabulary of {self.vocab_size}"
            for text, token in enumerate(largest)
            if token >= self.vocab_size
        }
        fine = table.without(reasons)
        return replace(fine, num_unknown=int(np.count_nonzero(fine.ids_T == self.unknown_id)))

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


def _join(tables: list[TokenTable]) -> TokenTable:
    """The table of all texts of tables of one text each."""
    return TokenTable(
        ids_T=np.concatenate([table.ids_T for table in tables]),
        lengths=np.concatenate([table.lengths for table in tables]),
        num_lost=np.concatenate([table.num_lost for table in tables]),
        num_unknown=sum(table.num_unknown for table in tables),
        reasons={
            number: reason
            for number, table in enumerate(tables)
            for reason in table.reasons.values()
        },
    )
