"""A job file -> stages with checked options; every complaint names file and line.

In:  YAML: corpus, out, stages with the options of their commands, gates, price_per_hour.
Out: JobFile: the spec of each stage, its inputs wired to the outputs of the stages before.
"""

import difflib
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml

from pipelines.apply.spec import ApplySpec
from pipelines.cluster.spec import ClusterSpec
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.index.spec import IndexSpec
from pipelines.options import words_of
from pipelines.pairs.spec import PairsSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.report.spec import ReportSpec
from pipelines.train.spec import TrainSpec

SPECS: dict[str, type] = {
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
# What a stage takes from the job unless it says otherwise: places below `out`.
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
# Beside its own: a date of a 13th month, a flag that is neither, brackets without an end.
YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
RUNNER = ("address", "plan", "out")  # decided by the run itself


class JobFileError(ValueError):
    """What is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Option:
    """A value and where it was given."""

    value: Any
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A job, ready to run."""

    path: Path
    out: str
    corpus: str | None
    stages: dict[str, Any]  # spec by name, in order
    gates: dict[str, float]
    price_per_hour: float | None

    @classmethod
    def read(
        cls, path: Path, settings: Sequence[str] = (), address: str | None = None
    ) -> "JobFile":
        """settings: words such as embed.model=demo that stand above the file."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise JobFileError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise JobFileError(f"{path} is no UTF-8 text; sbert init writes an example") from None
        tree = _parsed(text, str(path))
        for word in settings:
            _set(tree, word)
        return _checked(path, tree, address)


def _parsed(text: str, name: str) -> dict[str, Any]:
    """Nested dicts whose leaves are Options."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        raise JobFileError(f"{place}: {_problem(error)}") from None
    if not isinstance(node, yaml.MappingNode):
        raise JobFileError(
            f"{name}:1: a job file maps names to values; sbert init writes an example"
        )
    return _mapped(node, name, depth=2)


def _problem(error: Exception) -> str:
    """In one line; YAML's own words come with a picture of the place."""
    lines = str(error).splitlines() or [type(error).__name__]
    return getattr(error, "problem", None) or lines[0]


def _mapped(node: yaml.MappingNode, name: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        place = f"{name}:{key.start_mark.line + 1}"
        word = str(key.value)
        if word in found:
            raise JobFileError(f"{place}: {word!r} is given twice")
        if isinstance(value, yaml.MappingNode) and depth:
            found[word] = _mapped(value, name, depth - 1)
        else:
            loader = yaml.SafeLoader("")
            try:
                found[word] = Option(loader.construct_object(value, deep=True), place)
            except YAML_ERRORS as error:
                raise JobFileError(f"{place}: {_problem(error)}") from None
            finally:
                loader.dispose()
    return found


def _set(tree: dict[str, Any], word: str) -> None:
    """One `stage.option=value` of the command line."""
    key, equals, text = word.partition("=")
    names = key.split(".")
    if not equals or not all(names) or len(names) > 2:
        raise JobFileError(f"--set {word}: give STAGE.OPTION=VALUE, or corpus=, out= and the like")
    try:
        value = yaml.safe_load(text)
    except YAML_ERRORS:
        raise JobFileError(f"--set {word}: {text!r} is no YAML value") from None
    option = Option(value, f"--set {key}")
    if len(names) == 1:
        tree[names[0]] = option
        return
    if names[0] == "gates":
        if (gates := _below(tree, "gates", create=True)) is None:
            raise JobFileError(f"--set {key}: gates are names with numbers, one a line")
        gates[names[1]] = option
        return
    stages = _below(tree, "stages", create=True)
    own = None if stages is None else _below(stages, names[0], create=False)
    if own is None:
        raise JobFileError(f"--set {key}: the job has no stage {names[0]!r}")
    own[names[1]] = option


def _below(tree: dict[str, Any], name: str, *, create: bool) -> Any:  # noqa: ANN401
    """The block of a name; an empty one where the file has nothing behind the name."""
    found = tree.get(name)
    is_empty = isinstance(found, Option) and found.value is None
    if is_empty or (found is None and create):
        found = tree[name] = {}
    return found if isinstance(found, dict) else None


def _checked(path: Path, tree: dict[str, Any], address: str | None) -> JobFile:
    for word, value in tree.items():
        if word not in TOP:
            raise JobFileError(f"{_place(value, path)}: {_unknown(word, TOP, 'a job file has')}")
    stages = tree.get("stages", {})
    if not isinstance(stages, dict) or not stages:
        raise JobFileError(f"{path}: name at least one stage below 'stages:'")
    for word, value in stages.items():
        if word not in SPECS:
            raise JobFileError(f"{_place(value, path)}: {_unknown(word, SPECS, 'stages are')}")
        if isinstance(value, Option) and value.value is not None:
            raise JobFileError(
                f"{value.place}: {word} has options, one a line, not {value.value!r}"
            )
    out, corpus = (_text(tree.get(name), name, path) for name in ("out", "corpus"))
    if out is None:
        raise JobFileError(f"{path}: 'out:' is missing; every stage writes below it")
    price = tree.get("price_per_hour")
    given = price.value if isinstance(price, Option) else price
    if price is not None and not (isinstance(given, int | float) and given >= 0):
        raise JobFileError(f"{_place(price, path)}: price_per_hour is {given!r}; give a number")
    ordered = [name for name in SPECS if name in stages]
    wiring = Wiring(out.rstrip("/"), corpus, ordered, address)
    made = {}
    for name in ordered:
        options = stages[name] if isinstance(stages[name], dict) else {}
        made[name] = _spec(name, options, wiring.inputs(name), path)
    return JobFile(
        path=path.absolute(),  # Ray may take the working directory of a submitted job away
        out=out,
        corpus=corpus,
        stages=made,
        gates=_gates(tree.get("gates", {}), path),
        price_per_hour=None if given is None else float(given),
    )


@dataclass(frozen=True, slots=True)
class Wiring:
    """Which place a stage reads and writes unless it says otherwise."""

    out: str
    corpus: str | None
    stages: Sequence[str]
    address: str | None

    def inputs(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"out": f"{self.out}/{OUTPUTS[name]}"}
        for option, source in INPUTS.get(name, {}).items():
            found[option] = f"{self.out}/{OUTPUTS[source]}"
        if name in ("embed", "apply") and self.corpus is not None:
            found["corpus"] = self.corpus
        if "train" in self.stages and name in ("embed", "evaluate"):
            encoder = f"{self.out}/{OUTPUTS['train']}"
            found |= {"model": encoder} if name == "embed" else {"models": (encoder,)}
        if name == "report":
            found["sources"] = (self.out,)
        if self.address is not None and "address" in {f.name for f in fields(SPECS[name])}:
            found["address"] = self.address
        return found


def _spec(name: str, options: Mapping[str, Any], inputs: Mapping[str, Any], path: Path) -> object:
    kind = SPECS[name]
    known = {f.name: f for f in fields(kind) if f.name not in RUNNER}
    values = dict(inputs)
    place = str(path)
    for word, option in options.items():
        field = known.get(word.replace("-", "_"))
        place = _place(option, path)
        if field is None:
            raise JobFileError(f"{place}: {_unknown(word, known, f'{name} has')}")
        if not isinstance(option, Option):
            raise JobFileError(f"{place}: {name}.{word} takes a value, not more options")
        values[field.name] = _converted(option.value, field.type, f"{option.place}: {name}.{word}")
    for field in fields(kind):
        is_needed = field.default is MISSING and field.default_factory is MISSING
        if is_needed and field.name not in values:
            raise JobFileError(f"{path}: {name} needs {field.name!r}; give it below {name}:")
        if field.name in values:
            plain = values[field.name]
            values[field.name] = Path(plain) if _takes(field.type, Path) and plain else plain
    try:
        return kind(**values)
    except ValueError as error:
        raise JobFileError(f"{place}: {name}: {error}") from None


def _converted(value: Any, kind: Any, place: str) -> Any:  # noqa: ANN401
    """A YAML value as the type of the option."""
    choices = _choices(kind)
    if value is None and type(None) in choices:
        return None
    for choice in choices:
        if get_origin(choice) is tuple:
            return _items(value, get_args(choice), place)
    if bool in choices and isinstance(value, bool):
        return value
    if int in choices and isinstance(value, int) and not isinstance(value, bool):
        return value
    if float in choices and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if str in choices or Path in choices:
        if isinstance(value, list | tuple):  # as the command line takes several words
            return ",".join(str(item) for item in value)
        if not isinstance(value, bool | dict) and value is not None:
            return str(value)
    wanted = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
    names = " or ".join(wanted[c] for c in choices if c in wanted)
    raise JobFileError(f"{place} is {value!r}; give {names}")


def _items(value: Any, kinds: tuple, place: str) -> tuple:  # noqa: ANN401
    """A list, or words with commas between (a colon between two numbers)."""
    inner = kinds[0]
    if isinstance(value, str):
        is_band = inner is float and ":" in value
        value = value.split(":") if is_band else words_of(value)
    items = value if isinstance(value, list | tuple) else [value]
    try:
        made = tuple(inner(item) for item in items)
    except (TypeError, ValueError):
        raise JobFileError(f"{place} is {value!r}; give a list of {inner.__name__}") from None
    if Ellipsis not in kinds and len(made) != len(kinds):
        raise JobFileError(f"{place} is {value!r}; give {len(kinds)} values")
    return made


def _choices(kind: Any) -> tuple:  # noqa: ANN401
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _takes(kind: Any, wanted: type) -> bool:  # noqa: ANN401
    return wanted in _choices(kind)


def _gates(tree: object, path: Path) -> dict[str, float]:
    if isinstance(tree, Option) and tree.value is None:
        return {}
    if not isinstance(tree, dict):
        raise JobFileError(f"{_place(tree, path)}: gates are names with numbers, one a line")
    found = {}
    for word, option in tree.items():
        place = _place(option, path)
        if word not in GATES:
            raise JobFileError(f"{place}: {_unknown(word, GATES, 'gates are')}")
        value = option.value if isinstance(option, Option) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise JobFileError(f"{place}: gate {word} is {value!r}; give a number")
        found[word] = float(value)
    return found


def _text(option: object, name: str, path: Path) -> str | None:
    if option is None:
        return None
    if not isinstance(option, Option) or not isinstance(option.value, str) or not option.value:
        raise JobFileError(f"{_place(option, path)}: {name} is no path; give one")
    return option.value


def _place(value: object, path: Path) -> str:
    """Where a value stands; a block stands where its first line does."""
    if isinstance(value, Option):
        return value.place
    if isinstance(value, dict) and value:
        return _place(next(iter(value.values())), path)
    return str(path)


def _unknown(word: str, known: Sequence[str] | Mapping[str, Any], lead: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"{lead} {', '.join(names)}"
    return f"{word!r} is unknown; {hint}"
