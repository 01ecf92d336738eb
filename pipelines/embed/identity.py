"""What decides the output of an embed job: corpus, model, options.

In:  a spec, the corpus it found, the model it resolved, the output it holds.
Out: EmbedIdentity: the generation to publish, and a refusal where two recipes would mix.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.artifacts.kinds import VECTORS, VectorsSettings
from pipelines.artifacts.layout import WORK
from pipelines.artifacts.manifest import VectorsManifest
from pipelines.artifacts.writer import Writer
from pipelines.embed.model import ResolvedModel
from pipelines.embed.plan_record import PLAN, PlanHead, read_plan_head
from pipelines.embed.spec import EmbedSpec
from sbert_core.choices import Precision
from sbert_core.corpus.files import Corpus
from sbert_core.digest import digest

PART_OPTIONS = ("template", "id_column", "id", "carry", "where", "long", "dtype", "unit_rows")


@dataclass(frozen=True, slots=True)
class RecipeValue:
    """What one side of a conflict has: a value of a setting, and the model it belongs to."""

    value: str
    model: str


class MixedRecipes(ValueError):
    """The output holds vectors of another space, recipe or type.

    what: `vectors` or `unfinished work`. key: the setting that differs.
    """

    exit_code = 2

    def __init__(
        self, out: str, what: str, key: str, theirs: RecipeValue, mine: RecipeValue
    ) -> None:
        super().__init__(out, what, key, theirs, mine)
        self.out, self.what, self.key, self.theirs, self.mine = out, what, key, theirs, mine

    def __str__(self) -> str:
        folder = "" if self.what == "vectors" else "/_work"
        return (
            f"{self.out} holds {self.what} of {self.key} {self.theirs.value[:12]} (model "
            f"{self.theirs.model}), this job makes {self.key} {self.mine.value[:12]} (model "
            f"{self.mine.model}); choose another --out, or remove {self.out}{folder}"
        )


@dataclass(frozen=True)
class EmbedIdentity:
    """One corpus, embedded by one model, and the output it goes to.

    workplace: the storage the scan writes to: the output, or a temporary folder for an estimate.
    """

    spec: EmbedSpec
    corpus: Corpus
    model: ResolvedModel
    out: Writer
    workplace: str

    @cached_property
    def part_recipe(self) -> str:
        """Digest of everything but the corpus that shapes a part."""
        return compute_part_recipe(self.spec, self.model)

    @cached_property
    def generation(self) -> str:
        """The name of the generation to publish."""
        return compute_generation(self.spec, self.corpus, self.model)

    @property
    def work(self) -> str:
        """The work folder of the generation, below the output."""
        return f"{WORK}/{self.generation}"

    @property
    def current(self) -> VectorsManifest | None:
        """The vectors that are published now."""
        return self.out.current_of(VECTORS)

    def unfinished(self) -> list[str]:
        """Generations that were planned but not published."""
        stats = self.out.storage.list(WORK)
        found = {s.name.split("/")[1] for s in stats if s.name.endswith(f"/{PLAN}")}
        # A run killed right after publishing leaves work files of what is published.
        return sorted(found - ({self.out.current.generation} if self.out.current else set()))

    def unfinished_plans(self) -> list[PlanHead]:
        """Settings and scales of the generations that were planned but not published."""
        return [read_plan_head(self.out.storage, f"{WORK}/{name}") for name in self.unfinished()]

    def settings(
        self, scale: float | None, precision: Precision, *, is_batch_invariant: bool = False
    ) -> VectorsSettings:
        """What the manifest states of how the vectors were made, in whatever precision."""
        is_default = self.spec.precision is Precision.FLOAT32
        folder = Path(self.spec.model)
        return VectorsSettings(
            # A folder by its absolute path: a search may run in another folder.
            model=str(folder.absolute()) if folder.is_dir() else self.spec.model,
            space=self.model.space,
            recipe=self.model.recipe,
            prompt=self.model.prompt,
            max_length=self.model.max_length,
            long=self.spec.long,
            dim=self.model.dim,
            dtype=self.spec.dtype,
            scale=scale,
            normalized=True,
            batch_invariant=is_batch_invariant,
            precision=None if is_default else precision,
        )

    def refuse_other_precision(self, precision: Precision) -> None:
        """MixedRecipes if vectors that may be reused were computed in another format.

        `auto` is resolved by the device: the same words may mean bfloat16 today and float32
        tomorrow.
        """
        for what, theirs in self._settings_found():
            if theirs.computed_in != precision:
                raise MixedRecipes(
                    self.spec.out,
                    what,
                    "precision",
                    RecipeValue(theirs.computed_in, theirs.model),
                    RecipeValue(precision, self.spec.model),
                )

    def _settings_found(self) -> list[tuple[str, VectorsSettings]]:
        """Settings of what is published and of what is unfinished, each with its name."""
        found: list[tuple[str, VectorsSettings]] = []
        if self.current is not None:
            found.append(("vectors", self.current.settings))
        return found + [("unfinished work", plan.spec) for plan in self.unfinished_plans()]

    def refuse_other_recipes(self) -> None:
        """MixedRecipes if the output, or unfinished work in it, has another space or recipe."""
        mine = {"space": self.model.space, "recipe": self.model.recipe, "dtype": self.spec.dtype}
        for what, theirs in self._settings_found():
            for key, value in mine.items():
                if getattr(theirs, key) != value:
                    named, other, own = self._difference(key, theirs, value)
                    raise MixedRecipes(
                        self.spec.out,
                        what,
                        named,
                        RecipeValue(other, theirs.model),
                        RecipeValue(own, self.spec.model),
                    )

    def _difference(self, key: str, theirs: VectorsSettings, value: str) -> tuple[str, str, str]:
        """What differs: of a recipe the ingredient by name, if the settings show it."""
        if key == "recipe":
            ingredients = {
                "precision": (theirs.wanted_precision, self.spec.precision),
                "max_length": (theirs.max_length, self.model.max_length),
                "prompt": (repr(theirs.prompt), repr(self.model.prompt)),
                "long": (theirs.long, self.spec.long),
            }
            for name, (other, own) in ingredients.items():
                if other != own:
                    return name, str(other), str(own)
        return key, getattr(theirs, key), value


def compute_part_recipe(spec: EmbedSpec, model: ResolvedModel) -> str:
    """Digest of the model and the options that decide the bytes of a part."""
    options = {name: getattr(spec, name) for name in PART_OPTIONS}
    return digest({"model_recipe": model.recipe, **options})


def compute_generation(spec: EmbedSpec, corpus: Corpus, model: ResolvedModel) -> str:
    """Digest of everything that decides the bytes of the artifact."""
    whole = {
        "shape": compute_part_recipe(spec, model),
        "corpus": corpus.root,
        "files": [(file.path, file.size, file.version) for file in corpus.files],
        "limit": spec.limit,
        "distinct": spec.distinct,
        "skip_corrupt": spec.skip_corrupt,
    }
    return digest(whole)[:16]
