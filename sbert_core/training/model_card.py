"""What is known of a training run -> the model card beside the weights."""

from pathlib import Path
from typing import Any

OPTIONS = ("epochs", "batch_size", "accumulate", "lr", "warmup", "weight_decay", "seed")


def model_card(facts: dict[str, Any]) -> str:
    """Markdown with the header that model hubs read."""
    spec, report = facts["spec"], facts["report"]
    kind = "cross-encoder" if spec["cross_encoder"] else "sentence encoder"
    task = "text-ranking" if spec["cross_encoder"] else "sentence-similarity"
    lines = [
        "---",
        "library_name: sentence-transformers",
        f"pipeline_tag: {task}",
        "---",
        "",
        f"# {Path(spec['out']).name}",
        "",
        f"A {kind}, trained from `{spec['base']}` by `sbert train`.",
        "",
        "| | |",
        "|---|---|",
        f"| objective | {_objective(spec)} |",
        f"| data | `{spec['shards']}`, {sum(facts['data']['rows']):,} rows |",
        *(f"| {name} | {spec[name]} |" for name in OPTIONS),
        f"| workers | {report['workers']} |",
        f"| throughput | {report['rows_per_second']:,.1f} rows/s, {report['seconds']:,.0f} s |",
        "",
    ]
    if report["best_score"] is not None:
        lines += [
            f"Held-out {report['measure']}: {report['start_score']:.2f} before training, "
            f"**{report['best_score']:.2f}** after epoch {report['best_epoch']}, which is the one "
            "saved here.",
            "",
        ]
    lines += ["![loss and held-out score](training.svg)", "", "```python", *_usage(spec), "```", ""]
    return "\n".join(lines)


def _objective(spec: dict[str, Any]) -> str:
    name = spec["objective"] or "scores or classes of pairs"
    if name == "softmax":
        name += f" over ({spec['concat'].replace('|', chr(92) + '|')})"
    if name == "triplet":
        name += f", {spec['distance']} margin {spec['margin']:g}"
    if spec["matryoshka"]:
        name += f", also at {', '.join(map(str, spec['matryoshka']))} dimensions"
    return name


def _usage(spec: dict[str, Any]) -> list[str]:
    folder = Path(spec["out"]).name
    if spec["cross_encoder"]:
        return [
            "from sentence_transformers import CrossEncoder",
            f'CrossEncoder("{folder}").predict([("a question", "an answer")])',
        ]
    return [
        "from sentence_transformers import SentenceTransformer",
        f'SentenceTransformer("{folder}").encode(["a sentence"])',
    ]
