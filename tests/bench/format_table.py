"""Speeds and losses of the contenders -> one Markdown table, and what follows from it."""

import statistics
from dataclasses import dataclass

from format_contenders import OURS, Contender

from sbert_core.choices import Precision

MAX_LOSS = 0.3  # points of Spearman x 100, on a set and on average
HEADINGS = {
    "stsb_test": "STSb",
    "sts12_test": "STS12",
    "sts13_test": "STS13",
    "sts14_test": "STS14",
    "sick_test": "SICK",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What was measured of one contender: tokens/s of each round, scores, least cosines."""

    contender: Contender
    way: str
    rates: list[float]
    scores: dict[str, float]
    least_cos: dict[str, float]

    @property
    def label(self) -> str:
        return f"{self.contender.name}, {self.way}" if self.way else self.contender.name

    def times(self, other: "Row") -> float:
        """How many times as fast as another: the median over the rounds."""
        return statistics.median(a / b for a, b in zip(self.rates, other.rates, strict=True))

    def losses(self, float32: "Row") -> dict[str, float]:
        """Points lost on each set; negative where it gained."""
        return {name: float32.scores[name] - score for name, score in self.scores.items()}

    def is_excluded(self, float32: "Row") -> bool:
        """Does a peer lose too much to be compared with?"""
        losses = self.losses(float32).values()
        worst = max(*losses, statistics.mean(losses))
        return not self.contender.is_ours and worst > MAX_LOSS

    def record(self) -> dict:
        """For JSON."""
        return {
            "name": self.contender.name,
            "way": self.way,
            "rates": self.rates,
            "scores": self.scores,
            "least_cos": self.least_cos,
        }


def table(rows: list[Row]) -> str:
    """Markdown, ours first; scores with the loss against our float32 in brackets."""
    ours = our_rows(rows)
    float32 = ours[Precision.FLOAT32]
    kinds = list(float32.least_cos)
    headings = [
        "",
        "best tokens/s",
        "median",
        "times our float32",
        "ours of this format / this",
        *(HEADINGS[name] for name in float32.scores),
        "mean loss",
        *(f"least cosine, {kind}" for kind in kinds),
        "",
    ]
    lines = [f"| {' | '.join(headings)} |", "|---" + "|---:" * (len(headings) - 2) + "|---|"]
    for row in rows:
        losses = row.losses(float32)
        values = [
            row.label,
            f"{max(row.rates):,.0f}",
            f"{statistics.median(row.rates):,.0f}",
            f"{row.times(float32):.2f}",
            f"{ours[row.contender.precision].times(row):.2f}",
            *(f"{score:.2f} ({losses[name]:+.2f})" for name, score in row.scores.items()),
            f"{statistics.mean(losses.values()):+.2f}",
            *(f"{row.least_cos[kind]:.4f}" for kind in kinds),
            "excluded" if row.is_excluded(float32) else "",
        ]
        lines.append(f"| {' | '.join(values)} |")
    return "\n".join(lines)


def conclusions(rows: list[Row]) -> list[str]:
    """A line for each narrow format of ours, and the fastest peer that loses little enough."""
    ours = our_rows(rows)
    float32 = ours[Precision.FLOAT32]
    lines = []
    for precision, row in ours.items():
        lines.append(f"{row.contender.name}: {row.times(float32):.2f} times our float32")
        peers = [r for r in rows if not r.contender.is_ours and not r.is_excluded(float32)]
        plain = [r for r in peers if r.contender.name == "sentence-transformers float32"]
        lines[-1] += "".join(f", {row.times(r):.2f} times {r.label}" for r in plain)
        same = [r for r in peers if r.contender.precision == precision]
        if same:
            rival = min(same, key=row.times)
            lines[-1] += (
                f"; fastest peer in {precision}: {rival.label}, ours / it {row.times(rival):.2f}"
            )
    lines.append(
        f"excluded: loses more than {MAX_LOSS} points on a set or on average; "
        "ONNX Runtime has no bfloat16 products on CPUs"
    )
    return lines


def our_rows(rows: list[Row]) -> dict[Precision, Row]:
    """Our encoder in each of its formats."""
    return {row.contender.precision: row for row in rows if row.contender.encoder == OURS}
