"""YAML text -> a tree of values that remember where they were written.

In:  the text of a job file, and `STAGE.OPTION=VALUE` settings of the command line.
Out: nested dicts whose leaves are Settings. Nothing is known here of stages and their options.
"""

from dataclasses import dataclass
from typing import TypeAlias, Union

import yaml

# PyYAML raises these, too, on bad values: a 13th month, a flag that is neither true nor false,
# brackets nested too deep.
YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
TREE_DEPTH = 2  # of blocks below the top level: stages, and the options of one


class JobFileError(ValueError):
    """A job file that cannot be run. path and line: where; line is None for a whole file.

    setting: the `--set` that is wrong, instead of a line.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        line: int | None = None,
        setting: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path, self.line, self.setting = path, line, setting


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value was given: a line of a job file, or a `--set` of the command line."""

    path: str
    line: int | None = None
    setting: str | None = None

    def __str__(self) -> str:
        if self.setting is not None:
            return f"--set {self.setting}"
        return self.path if self.line is None else f"{self.path}:{self.line}"

    def error(self, reason: str) -> JobFileError:
        """An error that begins with this place."""
        return JobFileError(
            f"{self}: {reason}", path=self.path, line=self.line, setting=self.setting
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was given."""

    value: object
    place: Place


Tree: TypeAlias = dict[str, Union[Setting, "Tree"]]


def parse_tree(text: str, path: str) -> Tree:
    """The tree of a YAML text. path: for messages; JobFileError names the line of a fault."""
    try:
        node = yaml.compose(text, yaml.SafeLoader)
    except YAML_ERRORS as error:
        mark = getattr(error, "problem_mark", None)
        raise Place(path, mark.line + 1 if mark else None).error(_problem(error)) from None
    if not isinstance(node, yaml.MappingNode):
        raise Place(path, 1).error("a job file maps names to values; sbert init writes an example")
    return _parse_mapping(node, path, TREE_DEPTH)


def _parse_mapping(node: yaml.MappingNode, path: str, depth: int) -> Tree:
    found: Tree = {}
    for key, value in node.value:
        place = Place(path, key.start_mark.line + 1)
        name = str(key.value)
        if name in found:
            raise place.error(f"{name!r} is given twice")
        if isinstance(value, yaml.MappingNode) and depth:
            found[name] = _parse_mapping(value, path, depth - 1)
        else:
            found[name] = Setting(_construct(value, place), place)
    return found


def _construct(node: yaml.Node, place: Place) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except YAML_ERRORS as error:
        raise place.error(_problem(error)) from None
    finally:
        loader.dispose()


def _problem(error: Exception) -> str:
    """The reason on one line; PyYAML adds a drawing of the place."""
    lines = str(error).splitlines() or [type(error).__name__]
    return getattr(error, "problem", None) or lines[0]


def replace_setting(tree: Tree, word: str, path: str) -> None:
    """Put one `stage.option=value` of the command line into the tree."""
    key, equals, text = word.partition("=")
    names = key.split(".")
    whole = Place(path, setting=word)
    if not equals or not all(names) or len(names) > 2:
        raise whole.error("give STAGE.OPTION=VALUE, or corpus=, out= and the like")
    try:
        value = yaml.safe_load(text)
    except YAML_ERRORS:
        raise whole.error(f"{text!r} is no YAML value") from None
    place = Place(path, setting=key)
    block, name = tree, names[-1]
    if len(names) == 2:
        block = _find_block(tree, names[0], place)
    block[name] = Setting(value, place)


def _find_block(tree: Tree, name: str, place: Place) -> Tree:
    """The block of the gates, or of a stage."""
    if name == "gates":
        if (gates := get_block(tree, "gates", create=True)) is None:
            raise place.error("gates are names with numbers, one a line")
        return gates
    stages = get_block(tree, "stages", create=True)
    block = None if stages is None else get_block(stages, name)
    if block is None:
        raise place.error(f"the job has no stage {name!r}")
    return block


def get_block(tree: Tree, name: str, *, create: bool = False) -> Tree | None:
    """The block of a name, empty where the file has nothing behind the name; None for a value."""
    found = tree.get(name)
    is_empty = isinstance(found, Setting) and found.value is None
    if is_empty or (found is None and create):
        found = tree[name] = {}
    return found if isinstance(found, dict) else None


def place_of(value: "Setting | Tree | None", path: str) -> Place:
    """Where a value stands; for a block the place of its first value."""
    if isinstance(value, Setting):
        return value.place
    if isinstance(value, dict) and value:
        return place_of(next(iter(value.values())), path)
    return Place(path)
