"""Labelled rows of any file -> examples in one normal form.

In:  an Arrow table with texts and labels under names of the user's choice.
Out: a table with the column names of the format; labels spelled one way, scores in 0..1. A row that
     does not fit raises a ValueError that names it: a model learns from every row it is given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sbert_core.choices import ExampleFormat
from sbert_core.corpus.parquet import content_hash, decode_texts
from sbert_core.text import invalid_reason

# The text columns of each format; OTHER_NAMES are those of public data sets.
TEXTS = {
    ExampleFormat.PAIRS: ("text_a", "text_b"),
    ExampleFormat.SCORED: ("text_a", "text_b"),
    ExampleFormat.TRIPLETS: ("anchor", "positive", "negative"),
    ExampleFormat.RANKING: ("query", "positive"),
}
LABELS = {ExampleFormat.PAIRS: "label", ExampleFormat.SCORED: "score"}
OTHER_NAMES = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"))
NEGATIVE = "negative_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleColumns:
    """Names of the columns with the texts and the label of an example."""

    texts: tuple[str, ...]
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """How labels are read.

    classes: all allowed classes, in order; taken from the data if empty.
    skipped: classes whose rows are left out.
    low, high: the range of scores.
    """

    classes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0


def find_example_columns(
    names: Sequence[str], kind: ExampleFormat, given: Sequence[str], file: str
) -> ExampleColumns:
    """The columns the user named (`given`), or those under a usual name.

    names: all columns of the file. Raises ValueError if there are none that fit the format.
    """
    label = LABELS.get(kind)
    if given:
        missing = [name for name in given if name not in names]
        if missing:
            raise ValueError(f"{file} has no column {missing[0]!r}; it has: {', '.join(names)}")
        texts = tuple(given[: len(given) - (label is not None)])
        least = len(TEXTS[kind])
        if len(texts) < least or (kind is not ExampleFormat.RANKING and len(texts) > least):
            wanted = ",".join([*TEXTS[kind], *([label] if label else [])])
            raise ValueError(f"--columns names {len(given)} columns; {kind} needs {wanted}")
        return ExampleColumns(texts=texts, label=given[-1] if label else None)
    for texts in (TEXTS[kind], *(OTHER_NAMES if label else ())):
        if all(name in names for name in (*texts, *([label] if label else []))):
            if kind is ExampleFormat.RANKING:
                texts = (*texts, *sorted(n for n in names if n.startswith(NEGATIVE)))
            return ExampleColumns(texts=texts, label=label)
    wanted = ", ".join([*TEXTS[kind], *([label] if label else [])])
    raise ValueError(
        f"{file} has no columns {wanted}; it has: {', '.join(names)}; name them with --columns"
    )


def example_text_names(kind: ExampleFormat, num_texts: int) -> tuple[str, ...]:
    """Names of an example's text columns in shards; negatives are numbered from 1."""
    names = TEXTS[kind]
    return (*names, *(f"{NEGATIVE}{n}" for n in range(1, num_texts - len(names) + 1)))


def normalize_examples(
    table: pa.Table, kind: ExampleFormat, columns: ExampleColumns, rules: LabelRules, file: str
) -> pa.Table:
    """Rows under the names of the shards; `label` holds classes by name or scores in 0..1.

    Raises ValueError for an invalid text, an unknown class or a score outside the range.
    """
    fields: dict[str, object] = {}
    for name, source in zip(
        example_text_names(kind, len(columns.texts)), columns.texts, strict=True
    ):
        texts = decode_texts(table[source])
        for row, text in enumerate(texts):
            if reason := invalid_reason(text):
                raise ValueError(
                    f"{source!r} of row {row} in {file} is {reason}; a text must be there: "
                    "fill it in or remove the row"
                )
        fields[name] = pa.array(texts, pa.string())
    if columns.label is not None:
        values = table[columns.label].to_pylist()
        spell = _check_class if kind is ExampleFormat.PAIRS else _check_score
        labels = [spell(value, rules, row, file) for row, value in enumerate(values)]
        fields["label"] = pa.array(labels)
    fields["row"] = np.arange(table.num_rows)
    return pa.table(fields)


def class_name(value: object) -> str:
    """One spelling for 1, 1.0, '1' and for 'Neutral', 'neutral'."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value).strip().casefold()  # type: ignore[call-overload]


def _check_class(value: object, rules: LabelRules, row: int, file: str) -> str:
    name = class_name(value)
    known = (*rules.classes, *rules.skipped)
    if value is None or not name or (rules.classes and name not in known):
        wanted = f"one of {', '.join(rules.classes)}" if rules.classes else "a class"
        raise ValueError(
            f"label {value!r} in row {row} of {file} is not {wanted}; correct it, name all "
            "classes with --labels, or leave such rows out with --skip-label"
        )
    return name


def _check_score(value: object, rules: LabelRules, row: int, file: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not rules.low <= number <= rules.high:
        raise ValueError(
            f"score {value!r} in row {row} of {file} is outside {rules.low:g}..{rules.high:g}; "
            "correct it, or state the range of your scores with --score-range LOW,HIGH"
        )
    return (number - rules.low) / (rules.high - rules.low)


def normal_form(text: str) -> str:
    """The text without differences of case and spacing."""
    return " ".join(text.casefold().split())


def text_keys(texts: Sequence[str]) -> np.ndarray:
    """64-bit hashes of the normal form of each text."""
    digests = b"".join(content_hash(normal_form(text))[:8] for text in texts)
    return np.frombuffer(digests, dtype="<u8")
