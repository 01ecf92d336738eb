"""Options of commands, declared once, as fields of a spec.

In:  a class decorated with `spec_class` whose fields are made by `option` and `argument`.
Out: `options_of(spec)`: name, flag, type, default, help and kind of path of every field. The
     command line, the job file, `sbert init`, the paths that must be portable and
     docs/reference.md are all derived from it.

Only the standard library is imported here and in the specs: `--help` must not load torch or Ray.
"""

import dataclasses
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, Union, dataclass_transform, get_args, get_origin, overload

Value = TypeVar("Value")
SpecType = TypeVar("SpecType")

# The field `address` of every job that runs on Ray.
ADDRESS = "Ray cluster; embedded by default."
PRECISION = (
    "Number format of the encoder; auto is float32 on a CPU, and on a GPU bfloat16, or float16 "
    "where it has no bfloat16."
)
RAY_ADDRESS = "RAY_ADDRESS"
DECLARED = "option"  # key of an OptionInfo in the metadata of a field


class PathKind(StrEnum):
    """What the value of an option names outside the job file."""

    INPUT = "input"
    OUTPUT = "output"
    MODEL = "model"  # a folder, a URI, a hub id or 'demo'
    NAMED_MODEL = "named model"  # NAME=MODEL or NAME=FILE; a word without '=' is not a path


@dataclass(frozen=True, slots=True)
class Syntax:
    """How the command line spells a value that is not one plain word.

    parse: text to value; a ValueError explains what is wrong. none: how None is spelled.
    """

    parse: Callable[[str], object]
    separator: str = ","
    none: str = ""

    def spell(self, value: object) -> str:
        """The text that `parse` turns into `value`."""
        if value is None:
            return self.none
        items = value if isinstance(value, tuple) else (value,)
        return self.separator.join(f"{x:g}" if isinstance(x, float) else str(x) for x in items)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionInfo:
    """What a field of a spec declares beside its type and default."""

    help: str
    is_argument: bool = False
    flag: str | None = None
    path: PathKind | None = None
    syntax: Syntax | None = None
    metavar: str | None = None
    envvar: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOption:
    """One option of a command.

    name: the field and the key in a job file. flag: the word on the command line. kind: type of
    one value. length: number of values, 0 for any number, None for a single value.
    """

    name: str
    flag: str
    kind: type
    length: int | None
    is_optional: bool
    is_required: bool
    default: object
    info: OptionInfo

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a closed set; empty for other types."""
        return tuple(m.value for m in self.kind) if issubclass(self.kind, StrEnum) else ()

    @property
    def default_text(self) -> str:
        """The default as the command line spells it; empty where there is nothing to show."""
        if self.is_required or self.default is False or self.default is True:
            return ""
        if self.info.syntax is not None:
            return self.info.syntax.spell(self.default)
        return "" if self.default in (None, ()) else str(self.default)


@overload
def option(
    help: str,
    *,
    default: Value,
    flag: str | None = None,
    path: PathKind | None = None,
    syntax: Syntax | None = None,
    envvar: str | None = None,
    repr: bool = True,
) -> Value: ...


@overload
def option(
    help: str,
    *,
    flag: str | None = None,
    path: PathKind | None = None,
    syntax: Syntax | None = None,
    envvar: str | None = None,
    repr: bool = True,
) -> Value: ...  # type: ignore[type-var]  # required: the annotation decides


def option(
    help: str,
    *,
    default: object = dataclasses.MISSING,
    flag: str | None = None,
    path: PathKind | None = None,
    syntax: Syntax | None = None,
    envvar: str | None = None,
    repr: bool = True,
) -> object:
    """A field that is given by a flag, `--name` unless `flag` is another one.

    help: one plain sentence for `--help` and the reference. path: set where the value names a
    place. syntax: how the command line spells the value. envvar: an environment variable that
    replaces the default. repr: False for values that must not be printed.
    """
    info = OptionInfo(help=help, flag=flag, path=path, syntax=syntax, envvar=envvar)
    return dataclasses.field(default=default, repr=repr, metadata={DECLARED: info})


@overload
def argument(
    help: str, *, default: Value, path: PathKind | None = None, metavar: str | None = None
) -> Value: ...


@overload
def argument(help: str, *, path: PathKind | None = None, metavar: str | None = None) -> Value: ...  # type: ignore[type-var]


def argument(
    help: str,
    *,
    default: object = dataclasses.MISSING,
    path: PathKind | None = None,
    metavar: str | None = None,
) -> object:
    """A field that is given by position; parameters as those of `option`."""
    info = OptionInfo(help=help, is_argument=True, path=path, metavar=metavar)
    return dataclasses.field(default=default, metadata={DECLARED: info})


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    field_specifiers=(option, argument),
)
def spec_class(cls: type[SpecType]) -> type[SpecType]:
    """Make a subclass of `Spec` a frozen dataclass with keyword-only fields."""
    return dataclass(frozen=True, kw_only=True, slots=True)(cls)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """The checked options of one command; a value that does not fit is a ValueError."""

    def __post_init__(self) -> None:
        for declared in options_of(type(self)):
            value = getattr(self, declared.name)
            if not declared.choices or value is None:
                continue
            try:
                object.__setattr__(self, declared.name, to_choice(declared, value))
            except ValueError as error:
                raise ValueError(f"{declared.name} {error}") from None
        self.check()

    def check(self) -> None:
        """Refuse values that are out of range or exclude each other."""


def to_choice(declared: SpecOption, value: object) -> object:
    """The member of a closed set; ValueError with all choices where there is none."""
    if value in declared.choices:
        return declared.kind(value)
    *first, last = declared.choices
    known = f"{', '.join(first)} or {last}" if first else last
    raise ValueError(f"is {value!r}; give {known}")


def options_of(spec_type: type[Spec]) -> tuple[SpecOption, ...]:
    """All options of a spec, in the order of its fields."""
    found = []
    for field in dataclasses.fields(spec_type):
        info: OptionInfo = field.metadata[DECLARED]
        kind, length, is_optional = _value_type(field.type)
        is_required = field.default is dataclasses.MISSING
        found.append(
            SpecOption(
                name=field.name,
                flag=info.flag or f"--{field.name.replace('_', '-')}",
                kind=kind,
                length=length,
                is_optional=is_optional,
                is_required=is_required,
                default=None if is_required else field.default,
                info=info,
            )
        )
    return tuple(found)


def _value_type(annotation: object) -> tuple[type, int | None, bool]:
    """Type of one value, number of values (see SpecOption) and whether None is allowed."""
    kinds = (annotation,)
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = get_args(annotation)
    [kind] = [k for k in kinds if k is not type(None)]
    is_optional = len(kinds) > 1
    if get_origin(kind) is not tuple:
        assert isinstance(kind, type), f"{kind} is not a type of options"
        return kind, None, is_optional
    items = get_args(kind)
    return items[0], 0 if Ellipsis in items else len(items), is_optional


def check_positive(spec: Spec, *names: str) -> None:
    """Refuse numbers below 1; None is allowed."""
    for name in names:
        value = getattr(spec, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; give a whole number from 1 up")


def check_cosine(name: str, value: float) -> None:
    """Refuse a number that cannot be a cosine."""
    if not -1 <= value <= 1:
        raise ValueError(f"{name} is {value:g}; a cosine lies between -1 and 1")


def refuse_uri(out: Path) -> None:
    """Refuse an object store where only a folder can be written."""
    if re.match(r"[a-z0-9]+:/", str(out)):  # a path has lost one of the two slashes
        raise ValueError(f"out {out} is not a folder; give a folder")
