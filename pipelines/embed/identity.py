"""What a run of the embed job is to bring about, and whether it may.

In:  a spec, the corpus it found, the model it pinned, the output it holds.
Out: Goal: the name of the generation to publish, and a refusal where two recipes would mix.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.artifacts.layout import WORK
from pipelines.artifacts.writer import Writer
from pipelines.embed.model import PinnedModel
from pipelines.embed.spec import EmbedSpec
from sbert_core.corpus.files import Corpus
from sbert_core.digest import digest

SHAPING = ("template", "id_column", "id", "carry", "where", "long", "dtype", "unit_rows")


@dataclass(frozen=True)
class Goal:
    """This corpus, through this model, into that output.

    workplace: where the scan writes; the output itself, unless nothing may be written there.
    """

    spec: EmbedSpec
    corpus: Corpus
    model: PinnedModel
    out: Writer
    workplace: str

    @cached_property
    def shape(self) -> str:
        """Digest of everything but the corpus that shapes a part."""
        options = {name: getattr(self.spec, name) for name in SHAPING}
        return digest({"model_recipe": self.model.recipe, **options})

    @cached_property
    def generation(self) -> str:
        whole = {
            "shape": self.shape,
            "corpus": self.corpus.root,
            "files": [(file.path, file.size, file.version) for file in self.corpus.files],
            "limit": self.spec.limit,
            "distinct": self.spec.distinct,
            "skip_corrupt": self.spec.skip_corrupt,
        }
        return digest(whole)[:16]

    @property
    def work(self) -> str:
        return f"{WORK}/{self.generation}"

    @property
    def is_published(self) -> bool:
        current = self.out.current
        return current is not None and current.generation == self.generation

    def unfinished(self) -> list[str]:
        """Generations that were planned but not published."""
        stats = self.out.storage.list(WORK)
        found = {s.name.split("/")[1] for s in stats if s.name.endswith("/plan.json")}
        # A kill right after publishing leaves the work files of what is published.
        return sorted(found - ({self.out.current.generation} if self.out.current else set()))

    def plan_file(self, generation: str) -> dict[str, Any]:
        return json.loads(self.out.storage.read(f"{WORK}/{generation}/plan.json"))

    def spec_facts(self, scale: float | None) -> dict[str, Any]:
        """What the manifest says of how the vectors were made."""
        folder = Path(self.spec.model)
        return {
            # A folder by its whole path: searches start elsewhere.
            "model": str(folder.absolute()) if folder.is_dir() else self.spec.model,
            "space": self.model.space,
            "recipe": self.model.recipe,
            "prompt": self.model.prompt,
            "max_length": self.model.max_length,
            "long": self.spec.long,
            "dim": self.model.dim,
            "dtype": self.spec.dtype,
            "scale": scale,
            "normalized": True,
        }

    def refuse_other_recipes(self) -> None:
        """Two spaces, or two ways of making vectors, never meet in one artifact."""
        mine = {"space": self.model.space, "recipe": self.model.recipe, "dtype": self.spec.dtype}
        found: list[tuple[str, dict]] = []
        if self.out.current is not None:
            found.append(("vectors", self.out.current.spec))
        found += [("unfinished work", self.plan_file(name)["spec"]) for name in self.unfinished()]
        for what, theirs in found:
            for key, value in mine.items():
                if theirs[key] != value:
                    raise ValueError(
                        f"{self.spec.out} holds {what} of {key} {theirs[key][:12]} (model "
                        f"{theirs['model']}), this job makes {key} {value[:12]} (model "
                        f"{self.spec.model}); choose another --out, or remove {self.spec.out}"
                        f"{'/_work' if what != 'vectors' else ''}"
                    )
