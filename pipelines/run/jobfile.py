"""A job file -> stages with checked options; every error names file and line.

In:  YAML: corpus, out, stages with the options of their commands, gates, price_per_hour.
Out: JobFile: the spec of each stage, its inputs wired to the outputs of the stages before.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pipelines.apply.spec import ApplySpec
from pipelines.cluster.spec import ClusterSpec
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.index.spec import IndexSpec
from pipelines.options import Spec, options_of
from pipelines.pairs.spec import PairsSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.report.spec import ReportSpec
from pipelines.run.values import convert_value
from pipelines.run.yaml_tree import (
    JobFileError,
    Setting,
    Tree,
    parse_tree,
    place_of,
    replace_setting,
)
from pipelines.train.spec import TrainSpec

SPECS: dict[str, type[Spec]] = {
    "prepare": PrepareSpec,
    "train": TrainSpec,
    "evaluate": EvaluateSpec,
    "embed": EmbedSpec,
    "index": IndexSpec,
    "pairs": PairsSpec,
    "cluster": ClusterSpec,
    "apply": ApplySpec,
    "report": ReportSpec,
}
GATES = ("max_quarantined_share", "min_recall", "min_score", "max_removed_share")
TOP = ("corpus", "out", "stages", "gates", "price_per_hour")
# Outputs of stages below the job's `out`, and which of them are inputs of later stages.
OUTPUTS = {
    "prepare": "shards",
    "train": "encoder",
    "evaluate": "scores",
    "embed": "vectors",
    "index": "index",
    "pairs": "pairs",
    "cluster": "clusters",
    "apply": "corpus",
    "report": "report.html",
}
INPUTS = {
    "train": {"shards": "prepare"},
    "index": {"vectors": "embed"},
    "pairs": {"vectors": "embed"},
    "cluster": {"pairs": "pairs"},
    "apply": {"clusters": "cluster"},
}
RUNNER = ("address", "plan", "out")  # set by the run itself, not below a stage
SpecType = TypeVar("SpecType", bound=Spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A job, ready to run. stages: the spec of each, by name and in order."""

    path: Path
    out: str
    corpus: str | None
    stages: dict[str, Spec]
    gates: dict[str, float]
    price_per_hour: float | None

    @classmethod
    def read(
        cls, path: Path, settings: Sequence[str] = (), address: str | None = None
    ) -> "JobFile":
        """A job from its file; JobFileError for whatever is wrong with it.

        settings: `embed.model=demo` and the like, which replace values of the file. address: the
        Ray cluster of all stages.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            reason = f"{path} cannot be read: {error.strerror}"
            raise JobFileError(reason, path=str(path)) from None
        except UnicodeDecodeError:
            reason = f"{path} is no UTF-8 text; sbert init writes an example"
            raise JobFileError(reason, path=str(path)) from None
        tree = parse_tree(text, str(path))
        for word in settings:
            replace_setting(tree, word, str(path))
        return _read_tree(path, tree, address)

    def find(self, spec_type: type[SpecType]) -> SpecType | None:
        """The spec of a stage by its type; None where the job lacks the stage."""
        return next((spec for spec in self.stages.values() if isinstance(spec, spec_type)), None)


def _read_tree(path: Path, tree: Tree, address: str | None) -> JobFile:
    name = str(path)
    for word, value in tree.items():
        if word not in TOP:
            raise place_of(value, name).error(_unknown(word, TOP, "a job file has"))
    stages = _read_stages(tree.get("stages", {}), name)
    out, corpus = (_read_path(tree, key, name) for key in ("out", "corpus"))
    if out is None:
        raise JobFileError(f"{path}: 'out:' is missing; every stage writes below it", path=name)
    wiring = Wiring(out.rstrip("/"), corpus, tuple(stages), address)
    return JobFile(
        path=path.absolute(),  # Ray may take the working directory of a submitted job away
        out=out,
        corpus=corpus,
        stages={
            stage: _make_spec(stage, options, wiring.inputs(stage), name)
            for stage, options in stages.items()
        },
        gates=_read_gates(tree.get("gates", {}), name),
        price_per_hour=_read_price(tree.get("price_per_hour"), name),
    )


def _read_stages(stages: "Setting | Tree", path: str) -> dict[str, Tree]:
    """The options of each stage, in the order of the flow."""
    if not isinstance(stages, dict) or not stages:
        raise JobFileError(f"{path}: name at least one stage below 'stages:'", path=path)
    for stage, value in stages.items():
        if stage not in SPECS:
            raise place_of(value, path).error(_unknown(stage, SPECS, "stages are"))
        if isinstance(value, Setting) and value.value is not None:
            raise value.place.error(f"{stage} has options, one a line, not {value.value!r}")
    options = {stage: stages[stage] for stage in SPECS if stage in stages}
    return {stage: own if isinstance(own, dict) else {} for stage, own in options.items()}


@dataclass(frozen=True, slots=True)
class Wiring:
    """Which paths a stage reads and writes unless its options name others."""

    out: str
    corpus: str | None
    stages: Sequence[str]
    address: str | None

    def inputs(self, stage: str) -> dict[str, object]:
        """Values for fields of the stage's spec."""
        found: dict[str, object] = {"out": f"{self.out}/{OUTPUTS[stage]}"}
        for option, source in INPUTS.get(stage, {}).items():
            found[option] = f"{self.out}/{OUTPUTS[source]}"
        if stage in ("embed", "apply") and self.corpus is not None:
            found["corpus"] = self.corpus
        if "train" in self.stages and stage in ("embed", "evaluate"):
            encoder = f"{self.out}/{OUTPUTS['train']}"
            found |= {"model": encoder} if stage == "embed" else {"models": (encoder,)}
        if stage == "report":
            found["sources"] = (self.out,)
        if self.address is not None and "address" in (o.name for o in options_of(SPECS[stage])):
            found["address"] = self.address
        return found


def _make_spec(stage: str, given: Tree, inputs: Mapping[str, object], path: str) -> Spec:
    declared = {option.name: option for option in options_of(SPECS[stage])}
    known = [name for name in declared if name not in RUNNER]
    values = {name: convert_value(value, declared[name]) for name, value in inputs.items()}
    place = place_of(None, path)
    for word, setting in given.items():
        name, place = word.replace("-", "_"), place_of(setting, path)
        if name not in known:
            raise place.error(_unknown(word, known, f"{stage} has"))
        if not isinstance(setting, Setting):
            raise place.error(f"{stage}.{word} takes a value, not more options")
        try:
            values[name] = convert_value(setting.value, declared[name])
        except ValueError as error:
            raise place.error(f"{stage}.{word} {error}") from None
    for option in declared.values():
        if option.is_required and option.name not in values:
            reason = f"{path}: {stage} needs {option.name!r}; give it below {stage}:"
            raise JobFileError(reason, path=path)
    try:
        return SPECS[stage](**values)
    except ValueError as error:
        raise place.error(f"{stage}: {error}") from None


def _read_gates(tree: "Setting | Tree", path: str) -> dict[str, float]:
    if isinstance(tree, Setting):
        if tree.value is None:
            return {}
        raise tree.place.error("gates are names with numbers, one a line")
    found = {}
    for gate, setting in tree.items():
        place = place_of(setting, path)
        if gate not in GATES:
            raise place.error(_unknown(gate, GATES, "gates are"))
        value = setting.value if isinstance(setting, Setting) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise place.error(f"gate {gate} is {value!r}; give a number")
        found[gate] = float(value)
    return found


def _read_price(setting: "Setting | Tree | None", path: str) -> float | None:
    if setting is None:
        return None
    if not isinstance(setting, Setting):
        raise place_of(setting, path).error("price_per_hour takes a number, not more options")
    value = setting.value
    if not isinstance(value, int | float) or value < 0:
        raise setting.place.error(f"price_per_hour is {value!r}; give a number")
    return float(value)


def _read_path(tree: Tree, key: str, path: str) -> str | None:
    if (setting := tree.get(key)) is None:
        return None
    if not isinstance(setting, Setting) or not isinstance(setting.value, str) or not setting.value:
        raise place_of(setting, path).error(f"{key} is no path; give one")
    return setting.value


def _unknown(word: str, known: Iterable[str], lead: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"{lead} {', '.join(names)}"
    return f"{word!r} is unknown; {hint}"
