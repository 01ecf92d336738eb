"""All commands and their options as Markdown: `python -m pipelines.cli.reference`."""

import sys
from collections.abc import Iterable

import click

from pipelines import STAGES
from pipelines.cli.main import StageCommand, main
from pipelines.options import SpecOption, options_of
from pipelines.run.jobfile import GATES, INPUTS, OUTPUTS, RUNNER, SPECS, TOP

HEAD = """\
# Reference

Every command, its options and their keys in a job file. This file is generated from the specs of
the commands (`make reference`); edit `pipelines/*/spec.py` instead.

Every command also takes `--debug` (tracebacks and more log lines), `--json-log` (log lines as
JSON) and `--help`.
"""
JOB_FILE = """\
## Job file

A job file of `sbert run` has the keys {top}. A stage takes the keys of its table above. Unless a
stage names others, its inputs and outputs are these paths below `out`:

| stage | writes | reads |
|---|---|---|
{wiring}

With a stage `train`, `embed` and `evaluate` use its encoder. Gates are {gates}; the run ends with
exit code 4 if one fails.
"""
TYPES = {bool: "switch", int: "integer", float: "number"}


def reference_text() -> str:
    """The whole reference."""
    commands = [_command_text(stage, main.commands[stage]) for stage in STAGES]
    return "\n".join([HEAD, *commands, _job_file_text()])


def _command_text(stage: str, command: click.Command) -> str:
    assert isinstance(command, StageCommand)
    options = options_of(command.spec_type)
    context = click.Context(command, info_name=f"sbert {stage}")
    usage = " ".join([f"sbert {stage}", *command.collect_usage_pieces(context)])
    has_key = stage in SPECS
    header = ["option", "value", "default", *(["job file"] if has_key else []), "meaning"]
    rows = [_row(option, has_key) for option in options]
    rows += [_switch_row(param, has_key) for param in command.params if _is_switch(param, options)]
    return f"## sbert {stage}\n\n{command.help}\n\n```\n{usage}\n```\n\n{_table(header, rows)}\n"


def _row(option: SpecOption, has_key: bool) -> list[str]:
    info = option.info
    name = f"`{option.name.upper()}`" if info.is_argument else f"`{option.flag}`"
    key = [f"`{option.name}`" if option.name not in RUNNER else ""] if has_key else []
    meaning = info.help if info.envvar is None else f"{info.help} Environment: `{info.envvar}`."
    return [name, _value_text(option), _default_text(option), *key, meaning]


def _value_text(option: SpecOption) -> str:
    if option.choices:
        return ", ".join(f"`{choice}`" for choice in option.choices)
    kind = TYPES.get(option.kind, "path" if option.info.path is not None else "text")
    if option.info.path is not None and option.kind not in TYPES:
        kind = {"input": "input path", "output": "output path"}.get(option.info.path, "model")
    return f"{kind}, several" if option.length is not None else kind


def _default_text(option: SpecOption) -> str:
    if option.is_required:
        return "required"
    return f"`{option.default_text}`" if option.default_text else ""


def _is_switch(param: click.Parameter, options: Iterable[SpecOption]) -> bool:
    common = ("debug", "json_log", "help")
    return param.name not in (*common, *(option.name for option in options))


def _switch_row(param: click.Parameter, has_key: bool) -> list[str]:
    assert isinstance(param, click.Option)
    choices = param.type.choices if isinstance(param.type, click.Choice) else ()
    kind = "switch" if param.is_flag else ", ".join(f"`{c}`" for c in choices) or "number"
    default = "" if param.is_flag else f"`{param.default}`"
    return [f"`{param.opts[0]}`", kind, default, *([""] if has_key else []), param.help or ""]


def _job_file_text() -> str:
    wiring = []
    for stage, place in OUTPUTS.items():
        sources = [f"`{OUTPUTS[source]}`" for source in INPUTS.get(stage, {}).values()]
        if stage in ("embed", "apply"):
            sources.append("`corpus` of the job")
        wiring.append(f"| `{stage}` | `{place}` | {', '.join(sources)} |")
    top, gates = (", ".join(f"`{name}`" for name in names) for names in (TOP, GATES))
    return JOB_FILE.format(top=top, wiring="\n".join(wiring), gates=gates)


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_escape(cell) for cell in line)} |" for line in lines)


def _escape(cell: str) -> str:
    return cell.replace("|", r"\|")


if __name__ == "__main__":
    sys.stdout.write(reference_text())
