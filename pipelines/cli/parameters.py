"""Options of a spec -> parameters of a click command."""

from collections.abc import Callable
from pathlib import Path

import click

from pipelines.options import Spec, SpecOption, Syntax, options_of

# Switches that are not fields of a spec: they change how a command waits, logs or prints.
MAX_WAIT_SECONDS = 600.0
WHEN_BUSY = ("exit", "wait")


def spec_parameters(spec_type: type[Spec]) -> list[click.Parameter]:
    """Arguments and options of a spec, in the order of its fields."""
    return [
        _argument(declared) if declared.info.is_argument else _option(declared)
        for declared in options_of(spec_type)
    ]


def common_parameters(*, waits: bool, has_json: bool) -> list[click.Parameter]:
    """The switches of a command. waits: it may wait for others. has_json: it can print JSON."""
    found: list[click.Parameter] = []
    if has_json:
        found.append(
            click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON.")
        )
    if waits:
        found += [
            click.Option(
                ["--max-wait"],
                type=click.FloatRange(min=0),
                default=MAX_WAIT_SECONDS,
                show_default=True,
                help="Longest wait in seconds, for capacity of a cluster or for another run.",
            ),
            click.Option(
                ["--when-busy"],
                type=click.Choice(WHEN_BUSY),
                default=WHEN_BUSY[0],
                show_default=True,
                help="If another run holds the output: exit with code 5, or wait for its end.",
            ),
        ]
    return [
        *found,
        click.Option(["--debug"], is_flag=True, help="Show tracebacks and more log lines."),
        click.Option(["--json-log"], is_flag=True, help="Write log lines as JSON."),
    ]


def _argument(declared: SpecOption) -> click.Argument:
    is_many = declared.length is not None
    made = click.Argument(
        [declared.name],
        type=_type(declared),
        nargs=-1 if is_many else 1,
        required=declared.is_required,
        metavar=declared.info.metavar,
    )
    if not declared.is_required and not is_many:
        made.default = declared.default
    return made


def _option(declared: SpecOption) -> click.Option:
    info, words = declared.info, [declared.flag, declared.name]
    if declared.kind is bool:
        return click.Option(
            words,
            is_flag=True,
            flag_value=not declared.default,
            default=declared.default,
            help=info.help,
        )
    made = click.Option(
        words,
        type=_type(declared),
        multiple=declared.length is not None and info.syntax is None,
        required=declared.is_required,
        show_default=bool(declared.default_text),
        envvar=info.envvar,
        callback=None if info.syntax is None else _parser(info.syntax),
        help=info.help,
    )
    if not declared.is_required:  # click takes a default of None for a value
        made.default = _default(declared)
    return made


def _default(declared: SpecOption) -> object:
    """The default for click, which turns no options of a list into () by itself."""
    if declared.default in (None, ()) and not declared.default_text:
        return None if declared.default is None or declared.info.syntax is None else ""
    is_text = declared.info.syntax is not None or declared.choices
    return declared.default_text if is_text else declared.default


def _type(declared: SpecOption) -> object:
    """A type of click, or a plain type that click takes for one."""
    if declared.info.syntax is not None:
        return str
    if declared.choices:
        return click.Choice(declared.choices)
    return click.Path(path_type=Path) if declared.kind is Path else declared.kind


def _parser(syntax: Syntax) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """Parse the word of an option; a ValueError of the syntax becomes a usage error."""

    def parse(ctx: click.Context, param: click.Parameter, word: str | None) -> object:
        try:
            return None if word is None else syntax.parse(word)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return parse
