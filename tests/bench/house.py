"""Figures of the source itself: sizes, types, depth, repeats, and tests that pin prose.

    python tests/bench/house.py FOLDER [FOLDER ...]

One column for each folder, a working tree of this repository, so that two commits are measured by
the same rules. Everything is read with `ast` and `tokenize`; nothing is imported.

code                sbert_core, workers, pipelines; `tests` is counted apart
function            every def, its decorators left out, first to last line
branches            if, elif, loops, except, with a case, `and`/`or` terms, `if` in a comprehension
parameters          all kinds, without self and cls
Any                 the name `Any` outside imports; dict[str, Any] as it is written
call depth          a function has depth 1, or 1 more than the deepest own function it calls. Calls
                    are resolved by name: imported or own functions, classes by __init__ and
                    __call__, methods only where a single class has the name; cycles count once
one place           functions (no dunder, no command of click) with exactly one mention elsewhere
comments            `#` on a line of their own; in brackets those behind code as well
docstring           lines of all docstrings of modules, classes, functions over their number
repeats             pairs of functions and methods that share a run of 50 tokens: with names and
                    literals made equal, and literally
prose               a test pins prose if an `assert` or `match=` in it holds, directly, through a
                    variable, a parameter or a helper of the tests, a string with three successive
                    words that stand in this order in a string of the code (docstrings left out)
"""

import argparse
import ast
import io
import re
import statistics
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path

CODE = ("sbert_core", "workers", "pipelines")
MANY_BRANCHES = 10
MANY_PARAMETERS = 5
RUN_TOKENS = 50
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
GAP = re.compile(r"\\.|[.*+?|()\[\]{}^$:;,]+")  # a regular expression, or the end of a phrase
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Source:
    """One file, parsed. name: dotted, as it is imported."""

    path: Path
    name: str
    text: str
    tree: ast.Module

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def num_lines(self) -> int:
        return self.text.count("\n")


@dataclass
class House:
    """All sources of a working tree."""

    code: list[Source] = field(default_factory=list)
    tests: list[Source] = field(default_factory=list)

    @classmethod
    def read(cls, root: Path) -> "House":
        return cls(
            [source for name in CODE for source in read_sources(root, root / name)],
            list(read_sources(root, root / "tests")),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--list-prose", action="store_true", help="name the tests that pin prose")
    options = parser.parse_args()
    houses = [House.read(folder) for folder in options.folders]
    columns = [dict(measure(house)) for house in houses]
    print("| |" + "|".join(str(folder) for folder in options.folders) + "|")
    print("|---|" + "---:|" * len(columns))
    for name in columns[0]:
        print(f"| {name} |" + "|".join(f" {column[name]} " for column in columns) + "|")
    if options.list_prose:
        for house in houses:
            print(*prose_tests(house), sep="\n")


def read_sources(root: Path, folder: Path) -> Iterator[Source]:
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        yield Source(path, name.removesuffix(".__init__"), text, ast.parse(text))


def measure(house: House) -> Iterator[tuple[str, str]]:
    """Rows of the table, in order."""
    code, tests = house.code, house.tests
    lines = sum(source.num_lines for source in code)
    test_lines = sum(source.num_lines for source in tests)
    yield "files / lines, with tests", f"{len(code) + len(tests)} / {lines + test_lines:,}"
    yield "files / lines of code", f"{len(code)} / {lines:,}"
    yield "file median / p90 / max", spread([source.num_lines for source in code])
    functions = [function for source in code for function in source.functions]
    lengths = [(function.end_lineno or 0) - function.lineno + 1 for function in functions]
    yield "functions", f"{len(functions):,}"
    yield "function median / p90 / max", spread(lengths)
    yield from measure_functions(functions)
    yield from measure_any(code, lines)
    depths = list(call_depths(code).values())
    yield "static call depth p90 / max", f"{percentile(depths, 90)} / {max(depths)}"
    yield "functions called from one place", called_once(code, functions)
    yield from measure_prose(code, lines)
    yield "repeats: pairs alike, literal", repeats(code)
    yield "test / code lines", f"{test_lines / lines:.2f}"
    all_tests = [f for source in tests for f in source.functions if f.name.startswith("test_")]
    pinned = list(prose_tests(house))
    yield "tests", str(len(all_tests))
    yield "tests that pin prose", f"{len(pinned)} = {share(len(pinned), len(all_tests))}"


def measure_functions(functions: Sequence[Function]) -> Iterator[tuple[str, str]]:
    branches = [num_branches(function) for function in functions]
    many = sum(count > MANY_BRANCHES for count in branches)
    yield "branches > 10 (max)", f"{many} = {share(many, len(functions))} ({max(branches)})"
    parameters = [num_parameters(function) for function in functions]
    many = sum(count > MANY_PARAMETERS for count in parameters)
    yield "parameters > 5 (max)", f"{many} = {share(many, len(functions))} ({max(parameters)})"


def measure_any(code: Sequence[Source], lines: int) -> Iterator[tuple[str, str]]:
    names = [
        (source.name.split(".")[0], node)
        for source in code
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Name) and node.id == "Any"
    ]
    dicts = Counter(
        source.name.split(".")[0]
        for source in code
        for _ in re.finditer(r"dict\[str, Any\]", source.text)
    )
    yield "`Any` per 1,000 lines", f"{1000 * len(names) / lines:.1f} ({len(names)})"
    by_layer = ", ".join(f"{layer} {dicts[layer]}" for layer in CODE)
    yield "`dict[str, Any]`", f"{sum(dicts.values())} ({by_layer})"


def measure_prose(code: Sequence[Source], lines: int) -> Iterator[tuple[str, str]]:
    own, behind = 0, 0
    for source in code:
        for token in tokens_of(source.text):
            if token.type == tokenize.COMMENT:
                is_own = not token.line[: token.start[1]].strip()
                own, behind = own + is_own, behind + (not is_own)
    per_line = 1000 / lines
    yield (
        "comments per 1,000 lines (all)",
        f"{own * per_line:.0f} ({(own + behind) * per_line:.0f})",
    )
    docs = [
        doc
        for source in code
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        and (doc := ast.get_docstring(node)) is not None
    ]
    yield "lines of a docstring", f"{statistics.fmean(doc.count(chr(10)) + 1 for doc in docs):.2f}"


def spread(values: Sequence[int]) -> str:
    return f"{percentile(values, 50)} / {percentile(values, 90)} / {max(values)}"


def percentile(values: Iterable[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %"


def num_branches(function: Function) -> int:
    """1, and 1 for each place where control may go another way; nested functions left out."""
    total = 1
    for node in own_nodes(function):
        match node:
            case ast.If() | ast.For() | ast.While() | ast.ExceptHandler() | ast.IfExp():
                total += 1
            case ast.match_case():
                total += 1
            case ast.BoolOp():
                total += len(node.values) - 1
            case ast.comprehension():
                total += 1 + len(node.ifs)
    return total


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of functions inside it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, Function):
            todo.extend(ast.iter_child_nodes(node))


def num_parameters(function: Function) -> int:
    given = function.args
    named = [arg.arg for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    stars = (given.vararg is not None) + (given.kwarg is not None)
    return len([name for name in named if name not in ("self", "cls")]) + stars


def call_depths(code: Sequence[Source]) -> dict[str, int]:
    """Dotted name of each function -> length of the longest chain of calls that begins there."""
    calls = call_graph(code)
    depths: dict[str, int] = {}

    def depth(name: str, above: tuple[str, ...]) -> int:
        if name not in depths:
            below = [depth(c, (*above, name)) for c in calls[name] if c not in (*above, name)]
            depths[name] = 1 + max(below, default=0)
        return depths[name]

    for name in sorted(calls):
        depth(name, ())
    return depths


def call_graph(code: Sequence[Source]) -> dict[str, set[str]]:
    """Dotted name of each function -> own functions it calls."""
    graph: dict[str, set[str]] = {}
    methods: dict[str, list[str]] = defaultdict(list)
    for source in code:
        for owner, function in defined_functions(source.tree):
            graph[f"{source.name}.{owner}{function.name}"] = set()
            if owner:
                methods[function.name].append(f"{source.name}.{owner}{function.name}")
    for source in code:
        known = imported_names(source)
        for owner, function in defined_functions(source.tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    graph[f"{source.name}.{owner}{function.name}"] |= {
                        target
                        for target in call_targets(node.func, source, owner, known, methods)
                        if target in graph
                    }
    return graph


def defined_functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of a module and methods of its classes, with "Class." in front."""
    for node in tree.body:
        if isinstance(node, Function):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function):
                    yield f"{node.name}.", inner


def imported_names(source: Source) -> dict[str, str]:
    """Name in this module -> dotted name of what it stands for."""
    known = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            known |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
        elif isinstance(node, ast.Import):
            known |= {alias.asname or alias.name: alias.name for alias in node.names}
    return known


def call_targets(
    called: ast.expr,
    source: Source,
    owner: str,
    known: dict[str, str],
    methods: dict[str, list[str]],
) -> Iterator[str]:
    """Dotted names that a call may stand for."""
    if isinstance(called, ast.Name):
        whole = known.get(called.id, f"{source.name}.{called.id}")
        yield from (whole, f"{whole}.__init__", f"{whole}.__post_init__", f"{whole}.__call__")
    elif isinstance(called, ast.Attribute):
        if isinstance(called.value, ast.Name):
            base = called.value.id
            if base in ("self", "cls"):
                yield f"{source.name}.{owner}{called.attr}"
                return
            if base in known or base[:1].isupper():
                yield f"{known.get(base, f'{source.name}.{base}')}.{called.attr}"
                return
        if len(methods[called.attr]) == 1:
            yield methods[called.attr][0]


def called_once(code: Sequence[Source], functions: Sequence[Function]) -> str:
    mentions: Counter[str] = Counter()
    for source in code:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name):
                mentions[node.id] += 1
            elif isinstance(node, ast.Attribute):
                mentions[node.attr] += 1
    named = [
        function.name
        for function in functions
        if not function.name.startswith("__") and not is_command(function)
    ]
    once = sum(mentions[name] == 1 for name in named)
    return f"{100 * once / len(named):.0f} %"


def is_command(function: Function) -> bool:
    return any("command" in ast.unparse(decorator) for decorator in function.decorator_list)


def repeats(code: Sequence[Source]) -> str:
    """Pairs of functions that share a run of tokens."""
    alike: dict[tuple[str, ...], set[int]] = defaultdict(set)
    literal: dict[tuple[str, ...], set[int]] = defaultdict(set)
    number = 0
    for source in code:
        lines = source.text.splitlines(keepends=True)
        for _, function in defined_functions(source.tree):
            number += 1
            text = "".join(lines[function.lineno - 1 : function.end_lineno])
            plain = [t for t in tokens_of(text) if t.type not in SKIPPED_TOKENS]
            for seen, words in (
                (literal, [t.string for t in plain]),
                (alike, [shape_of(t) for t in plain]),
            ):
                for start in range(len(words) - RUN_TOKENS + 1):
                    seen[tuple(words[start : start + RUN_TOKENS])].add(number)
    return ", ".join(
        str(len({pair for group in seen.values() for pair in combinations(sorted(group), 2)}))
        for seen in (alike, literal)
    )


SKIPPED_TOKENS = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ERRORTOKEN,
}
KEYWORDS = set(
    "def return for in if else elif while with as try except raise not and or is".split()
)


def shape_of(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME and token.string not in KEYWORDS:
        return "name"
    return {tokenize.STRING: "text", tokenize.NUMBER: "number"}.get(token.type, token.string)


def tokens_of(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, IndentationError):  # a method cut out of its class
        return


def prose_tests(house: House) -> Iterator[str]:
    """Names of tests that pin a sentence of the code."""
    sentences = message_phrases(house.code)
    helpers = asserting_helpers(house.tests)
    for source in house.tests:
        constants = assigned_strings(source.tree.body)
        for function in source.functions:
            if not function.name.startswith("test_"):
                continue
            texts = asserted_strings(function, constants, helpers)
            if any(phrase in sentences for text in texts for phrase in phrases(text)):
                yield f"{source.name}.{function.name}"


def message_phrases(code: Sequence[Source]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for source in code:
        docs = {id(doc) for doc in docstring_nodes(source.tree)}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in docs:
                    found.update(phrases(node.value))
    return found


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def phrases(text: str) -> Iterator[tuple[str, ...]]:
    """Runs of three words with nothing but blanks between them."""
    for part in GAP.split(text):
        words = part.lower().split()
        for run in zip(words, words[1:], words[2:], strict=False):
            if all(WORD.fullmatch(word) for word in run):
                yield run


def asserting_helpers(tests: Sequence[Source]) -> set[str]:
    """Names of functions of the tests that assert what they were given."""
    return {
        function.name
        for source in tests
        for function in source.functions
        if not function.name.startswith("test_")
        and {arg.arg for arg in (*function.args.args, *function.args.kwonlyargs)}
        & {
            node.id
            for checked in checked_expressions(function)
            for node in ast.walk(checked)
            if isinstance(node, ast.Name)
        }
    }


def asserted_strings(
    test: Function, constants: dict[str, list[str]], helpers: set[str]
) -> Iterator[str]:
    """Strings that an assertion of a test compares with."""
    known = constants | assigned_strings(ast.walk(test)) | parametrized_strings(test)
    expressions = list(checked_expressions(test))
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and called_name(node) in helpers:
            expressions += [*node.args, *(keyword.value for keyword in node.keywords)]
    for expression in expressions:
        yield from strings_in(expression)
        for node in ast.walk(expression):
            if isinstance(node, ast.Name):
                yield from known.get(node.id, [])


def checked_expressions(function: Function) -> Iterator[ast.expr]:
    """What is asserted, without the words for a failure, and patterns of `match=`."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def called_name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def assigned_strings(nodes: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Variables that are given literal strings, lists and dicts of them included."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            found |= {name: list(strings_in(node.value)) for name in names}
    return found


def parametrized_strings(test: Function) -> dict[str, list[str]]:
    """Parameters of a test -> the strings they are given, by place."""
    found: dict[str, list[str]] = defaultdict(list)
    for decorator in test.decorator_list:
        if not isinstance(decorator, ast.Call) or called_name(decorator) != "parametrize":
            continue
        if not isinstance(decorator.args[0], ast.Constant):
            continue
        names = [name.strip() for name in str(decorator.args[0].value).split(",")]
        rows = decorator.args[1]
        for row in rows.elts if isinstance(rows, ast.List | ast.Tuple) else [rows]:
            cells = row.elts if len(names) > 1 and isinstance(row, ast.Tuple) else [row]
            if len(cells) != len(names):
                cells = [row] * len(names)
            for name, cell in zip(names, cells, strict=True):
                found[name] += strings_in(cell)
    return dict(found)


def strings_in(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


if __name__ == "__main__":
    main()
