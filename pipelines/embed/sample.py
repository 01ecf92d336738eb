"""A plan -> some texts from all over the corpus, to measure on."""

from collections.abc import Sequence

import numpy as np

from pipelines.embed.identity import Goal
from pipelines.embed.plan import Plan
from sbert_core.corpus.parquet import Text
from sbert_core.corpus.text_lookup import CorpusTexts
from sbert_core.corpus.units import Unit
from sbert_core.vectors.reader import part_table

SAMPLE_UNITS = 16


def sampled_texts(goal: Goal, plan: Plan, units: Sequence[Unit], num_texts: int) -> list[Text]:
    """The first texts of some of the units; the same for the same units, linked or new."""
    chosen = units[:: max(1, len(units) // SAMPLE_UNITS)]
    num_rows = -(-num_texts // max(1, len(chosen)))
    linked = _linked_texts(goal, plan, [u for u in chosen if u.number in plan.links], num_rows)
    reading = plan.reading(goal.spec, goal.corpus, goal.workplace)
    texts: list[Text] = []
    for unit in chosen:
        if unit.number in linked:
            texts += linked[unit.number]
        else:
            few = min(unit.num_rows, num_rows)
            texts += reading.read(unit.path, unit.first_row, few).texts
    return texts[:num_texts]


def _linked_texts(
    goal: Goal, plan: Plan, units: list[Unit], num_rows: int
) -> dict[int, list[str | None]]:
    """First texts of units that are taken over, by unit: no plan has opened their files."""
    if not units:
        return {}
    places: dict[int, list[tuple[str, int]]] = {}
    for unit in units:
        link = plan.links[unit.number]
        parts = [part for part in (link.data, link.quarantine) if part is not None]
        tables = [part_table(goal.out.storage, part.path, ["row"]) for part in parts]
        rows = np.unique(np.concatenate([table["row"].to_numpy() for table in tables]))
        rows = rows[rows < unit.first_row + num_rows]
        places[unit.number] = [(unit.path, row) for row in rows.tolist()]
    assert goal.out.current is not None, "what is linked was published"
    corpus = CorpusTexts(goal.out.current.made_from)
    found = iter(corpus.at([place for own in places.values() for place in own]))
    return {number: [next(found) for _ in own] for number, own in places.items()}
