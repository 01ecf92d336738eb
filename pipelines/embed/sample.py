"""Sample texts from all over the corpus, to measure on."""

from collections.abc import Sequence

import numpy as np

from pipelines.embed.identity import EmbedIdentity
from pipelines.embed.plan_record import Plan
from sbert_core.corpus.parquet import Text
from sbert_core.corpus.text_lookup import TextLookup
from sbert_core.corpus.units import Unit
from sbert_core.vectors.reader import read_part

SAMPLE_UNITS = 16


def sample_texts(
    identity: EmbedIdentity, plan: Plan, units: Sequence[Unit], num_texts: int
) -> list[Text]:
    """The first texts of evenly chosen units; the same for the same units, linked or new."""
    chosen = units[:: max(1, len(units) // SAMPLE_UNITS)]
    num_rows = -(-num_texts // max(1, len(chosen)))
    linked = _linked_texts(identity, plan, [u for u in chosen if u.number in plan.links], num_rows)
    reader = plan.reader(identity.spec, identity.corpus, identity.workplace)
    texts: list[Text] = []
    for unit in chosen:
        if unit.number in linked:
            texts += linked[unit.number]
        else:
            few = min(unit.num_rows, num_rows)
            texts += reader.read(unit.path, unit.first_row, few).texts
    return texts[:num_texts]


def _linked_texts(
    identity: EmbedIdentity, plan: Plan, units: list[Unit], num_rows: int
) -> dict[int, list[str | None]]:
    """First texts of linked units, by unit number: their files were not opened by the plan."""
    if not units:
        return {}
    places: dict[int, list[tuple[str, int]]] = {}
    for unit in units:
        link = plan.links[unit.number]
        parts = [part for part in (link.data, link.quarantine) if part is not None]
        tables = [read_part(identity.out.storage, part.path, ["row"]) for part in parts]
        rows = np.unique(np.concatenate([table["row"].to_numpy() for table in tables]))
        rows = rows[rows < unit.first_row + num_rows]
        places[unit.number] = [(unit.path, row) for row in rows.tolist()]
    assert identity.current is not None, "what is linked was published"
    corpus = TextLookup(identity.current.inputs.texts)
    found = iter(corpus.get([place for own in places.values() for place in own]))
    return {number: [next(found) for _ in own] for number, own in places.items()}
