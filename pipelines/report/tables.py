"""Records of stages, scores, cards and certificates -> tables and headline."""

from typing import Any

from pipelines.artifacts.certificate import is_rare, most_missed
from pipelines.report.sources import Found

PHASES = ("plan", "embed", "join", "write", "read", "decide")


def headline_of(found: Found) -> list[dict[str, str]]:
    cards: list[tuple[str, str]] = []
    if found.vectors is not None:
        run = found.runs.get("vectors", {})
        cards.append(("rows embedded", f"{found.vectors.rows:,}"))
        if "repeats" in run:
            cards.append(("distinct texts", f"{found.vectors.rows - run['repeats']:,}"))
        if run.get("tokens_per_second"):
            cards.append(("tokens per second", f"{run['tokens_per_second']:,.0f}"))
        cards.append(("in quarantine", f"{found.vectors.manifest.quarantined:,}"))
    if found.pairs is not None:
        certificate = found.pairs.manifest.facts.get("certificate")
        cards.append(("similar pairs", f"{found.pairs.rows:,}"))
        if certificate is not None and is_rare(certificate):
            most = f"\u2264 {most_missed(certificate):,.0f}"
            cards.append(("similar pairs missing", most))
        else:
            recall = "exact" if certificate is None else f"\u2265 {certificate['low']:.4f}"
            cards.append(("recall of pairs", recall))
    if found.clusters is not None:
        removed = found.clusters.manifest.facts["removed"]
        least = min(removed, key=float)
        cards.append((f"near-duplicates removed at {least}", f"{removed[least]:,}"))
    if found.record:
        cards.append(("seconds, all stages", f"{found.record['seconds']:,.0f}"))
        if found.record.get("price_per_hour") is not None:
            cost = found.record["price_per_hour"] * found.record["seconds"] / 3600
            cards.append(("cost of the run", f"{cost:,.2f}"))
    return [{"label": label, "value": value} for label, value in cards]


def gates_of(found: Found) -> list[dict[str, Any]]:
    shown = []
    for gate in found.record.get("gates", []):
        value = "not measured" if gate["value"] is None else f"{gate['value']:.6g}"
        shown.append(
            {"is_met": gate["is_met"], "said": f"{gate['name']} {gate['limit']:g}: {value}"}
        )
    return shown


def stages_of(found: Found) -> list[dict[str, Any]]:
    """Time of each stage of the run, and of each artifact's own phases."""
    rows: list[list[Any]] = []
    for stage in found.record.get("stages", []):
        memory = round(stage.get("driver_bytes", 0) / 1e6) or None
        seconds = round(float(stage["seconds"]), 2)
        rows.append([stage["name"], stage["outcome"], seconds, "", memory])
    for kind, run in found.runs.items():
        phases = ", ".join(f"{name} {own:.1f} s" for name, own in run.get("phases", {}).items())
        memory = max(run.get("private_bytes", {}).values(), default=0) / 1e6
        rows.append(
            [
                kind,
                "last run",
                round(float(run.get("seconds", 0.0)), 2),
                phases,
                round(memory) or None,
            ]
        )
    if not rows:
        return []
    columns = ["stage", "outcome", "seconds", "phases", "MB of a process"]
    return [{"columns": columns, "rows": rows}]


def scores_of(found: Found) -> list[dict[str, Any]]:
    models = list(found.scores)
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for model, scores in found.scores.items():
        for score in scores:
            if score["is_main"]:
                key = (score["task"], score["data"], score["measure"])
                rows.setdefault(key, {})[model] = score["value"]
    if not rows:
        return []
    table = [
        [*key, *(round(own[m], 2) if m in own else "-" for m in models)]
        for key, own in rows.items()
    ]
    return [{"columns": ["task", "data", "measure", *models], "rows": table}]


def index_of(found: Found) -> list[dict[str, Any]]:
    card = found.card
    if card is None:
        return []
    rows: list[list[Any]] = [
        [name, card.get(name)]
        for name in (
            "kind",
            "rows",
            "distinct",
            "shards",
            "bytes",
            "build_seconds",
            "queries_per_second",
        )
        if card.get(name) is not None
    ]
    for sample, recalls in card["recall"].items():
        for k, own in recalls.items():
            rows.append(
                [
                    f"recall@{k}, {sample}",
                    f"{own['value']:.4f} ({own['low']:.4f} to {own['high']:.4f})",
                ]
            )
    for name in ("single_query_ms", "extrapolated_query_ms"):
        own = card[name]
        how = f" ({own['how']})" if "how" in own else ""
        rows.append(
            [
                f"one query among {own['rows']:,} rows",
                f"p50 {own['p50']:.2f} ms, p99 {own['p99']:.2f} ms{how}",
            ]
        )
    return [{"columns": ["", ""], "rows": rows}]


def certificate_of(found: Found) -> list[dict[str, Any]]:
    own = None if found.pairs is None else found.pairs.manifest.facts.get("certificate")
    if own is None:
        return []
    said = (
        f"{own['rows_sampled']:,} of {own['rows']:,} rows were looked up exactly; recall "
        f"{own['value']:.4f}, at least {own['low']:.4f}, and at most {most_missed(own):,.0f} "
        f"pairs are missing, with confidence {own['confidence']:.4g}"
    )
    rows = [
        [
            f"{band['from']:.2f}",
            band["found"],
            round(band["missed"], 1),
            round(band["value"], 4),
            round(band["low"], 4),
        ]
        for band in own["bands"]
    ]
    columns = ["cosine from", "found", "missed, estimated", "recall", "at least"]
    return [{"columns": columns, "rows": rows, "said": said}]


def trainings_of(found: Found) -> list[dict[str, Any]]:
    shown = []
    for name, own in found.trainings.items():
        report = own["report"]
        steps = max(1, report["steps"])
        epochs = max((epoch for epoch, _ in own["dev"]), default=1) or 1
        scores = [(epoch * steps / epochs, score) for epoch, score in own["dev"]]
        said = f"{report['rows']:,} rows in {steps:,} steps"
        if report.get("best_score") is not None:
            said += f"; {report['measure']} {report['start_score']:.2f} before, "
            said += f"{report['best_score']:.2f} after"
        shown.append(
            {
                "name": name,
                "loss": own["loss"],
                "scores": scores,
                "measure": report.get("measure") or "score",
                "said": said,
            }
        )
    return shown
