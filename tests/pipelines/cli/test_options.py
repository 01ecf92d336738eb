"""One declaration per option: specs, command line, job file, example and reference agree."""

import subprocess
import sys
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path

import click
import pytest
import yaml
from support.specs import SPECS_AND_DIGESTS

from pipelines import STAGES
from pipelines.cli.main import StageCommand, main
from pipelines.cli.reference import reference_text
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.init.job import EXAMPLE, example_text
from pipelines.mine.spec import MineSpec
from pipelines.options import PathKind, Spec, argument, option, options_of, spec_class
from pipelines.path.spec import PathSpec
from pipelines.run.jobfile import GATES, RUNNER, SPECS, JobFile
from pipelines.search.spec import SearchSpec
from sbert_core.choices import Precision
from sbert_core.digest import digest

ROOT = Path(__file__).parents[3]
COMMANDS: dict[str, StageCommand] = {stage: main.commands[stage] for stage in STAGES}
# Options of stages whose text is not a path.
PLAIN_TEXT = set(
    "address carry columns concat id_column keep kind labels prompt skip_label text text_column "
    "title where".split()
)


def stage_of(spec: Spec) -> str:
    return next(stage for stage, own in COMMANDS.items() if own.spec_type is type(spec))


def words_of(spec: Spec) -> list[str]:
    """The command line that gives a spec; options with their defaults are left out."""
    words, arguments = [], []
    for declared in options_of(type(spec)):
        value = getattr(spec, declared.name)
        items = value if isinstance(value, tuple) else (value,)
        if declared.info.is_argument:
            arguments += [str(item) for item in items if item is not None]
        elif value == declared.default and not declared.is_required:
            continue
        elif declared.kind is bool:
            words.append(declared.flag)
        elif declared.info.syntax is not None:
            words += [declared.flag, declared.info.syntax.spell(value)]
        else:
            words += [word for item in items for word in (declared.flag, str(item))]
    return [*words, "--", *arguments]


WITH_PRECISION = (EmbedSpec, EvaluateSpec, MineSpec, SearchSpec)


def parsed(stage: str, words: list[str]) -> Spec:
    command = COMMANDS[stage]
    values = command.make_context(stage, words).params
    names = {field.name for field in fields(command.spec_type)}
    return command.spec_type(**{name: value for name, value in values.items() if name in names})


@pytest.mark.parametrize(
    ("spec", "expected"), SPECS_AND_DIGESTS, ids=lambda own: type(own).__name__
)
def test_spec_digest_is_that_of_the_first_release(spec, expected):
    options = asdict(spec)
    if type(spec) in WITH_PRECISION and options["precision"] is Precision.FLOAT32:
        del options["precision"]  # younger than the first release; digests leave its default out
    if spec == PathSpec(artifact="a"):
        options = {"artifact": "a"}  # all others are younger
    assert digest(options)[:16] == expected


@pytest.mark.parametrize("spec", [spec for spec, _ in SPECS_AND_DIGESTS], ids=repr)
def test_command_line_of_a_spec_gives_the_spec(spec, monkeypatch):
    for declared in options_of(type(spec)):
        if declared.info.envvar is not None:
            monkeypatch.delenv(declared.info.envvar, raising=False)
    assert parsed(stage_of(spec), words_of(spec)) == spec


@pytest.mark.parametrize(
    "spec", [spec for spec, _ in SPECS_AND_DIGESTS if type(spec) in SPECS.values()], ids=repr
)
def test_job_file_of_a_spec_gives_the_spec(spec, tmp_path):
    stage = stage_of(spec)
    own = {
        name: str(value) if isinstance(value, StrEnum) else value
        for name, value in asdict(spec).items()
        if name not in RUNNER
    }
    given = {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"out": "o", "stages": {stage: given}}))
    found = asdict(JobFile.read(job).stages[stage])
    assert {name: found[name] for name in own} == own


def test_specs_of_the_tests_set_every_option():
    for command in COMMANDS.values():
        own = [spec for spec, _ in SPECS_AND_DIGESTS if type(spec) is command.spec_type]
        for declared in options_of(command.spec_type) if own else ():
            values = {getattr(spec, declared.name) for spec in own}
            assert values - {declared.default}, f"{command.name}: {declared.name}"
    assert {type(spec) for spec, _ in SPECS_AND_DIGESTS} == {
        own.spec_type for stage, own in COMMANDS.items() if stage != "init"
    }


@pytest.mark.parametrize("stage", STAGES)
def test_click_has_every_field_with_its_default_and_help(stage):
    command = COMMANDS[stage]
    params = {param.name: param for param in command.params}
    declared = options_of(command.spec_type)
    assert [own.name for own in declared] == list(params)[: len(declared)]
    for own in declared:
        param = params[own.name]
        assert param.required == own.is_required
        assert own.info.help.endswith((".", "..."))
        if isinstance(param, click.Option):
            assert param.opts == [own.flag] and param.help == own.info.help
            shown = own.default_text if param.show_default else ""
            assert shown == own.default_text
        if not own.is_required and own.length is None:
            default = param.get_default(click.Context(command))
            value = param.process_value(click.Context(command), default)
            assert value == own.default


def test_job_file_stages_are_commands():
    assert {stage: COMMANDS[stage].spec_type for stage in SPECS} == SPECS


def test_every_text_option_of_a_job_file_is_a_path_or_known_not_to_be():
    found = {
        own.name: own.info.path
        for spec_type in SPECS.values()
        for own in options_of(spec_type)
        if own.kind in (str, Path)
    }
    assert {name for name, path in found.items() if path is None} == PLAIN_TEXT
    outputs = {name for name, path in found.items() if path is PathKind.OUTPUT}
    assert outputs == {"out"}


def test_reference_is_generated_and_lists_every_option():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert text == reference_text()
    sections = {part.partition("\n")[0]: part for part in text.split("\n## sbert ")[1:]}
    for stage, command in COMMANDS.items():
        for own in options_of(command.spec_type):
            name = own.name.upper() if own.info.is_argument else own.flag
            assert f"| `{name}` |" in sections[stage]


def test_example_with_every_comment_removed_is_a_job(tmp_path):
    job = tmp_path / "job.yaml"
    names = {stage.name for stage in EXAMPLE}
    names |= {own.name for stage in EXAMPLE for own in stage.options}
    names |= {*GATES, "price_per_hour"}
    lines = []
    for line in example_text("texts", "o/").splitlines():
        bare = line.replace("# ", "", 1) if line.lstrip().startswith("#") else line
        is_setting = bare.strip().partition(":")[0] in names
        lines.append(bare if is_setting else line)
    job.write_text("\n".join(lines), encoding="utf-8")
    made = JobFile.read(job)
    assert list(made.stages) == [stage for stage in SPECS if stage in names]
    assert set(made.gates) == set(GATES) and made.price_per_hour == 1.2
    for stage in EXAMPLE:
        for own in stage.options:
            declared = {o.name: o for o in options_of(SPECS[stage.name])}[own.name]
            if own.value is None:
                assert getattr(made.stages[stage.name], own.name) == declared.default


def test_choice_that_is_unknown_is_refused_with_all_choices():
    class Colour(StrEnum):
        RED = "red"
        BLUE = "blue"

    @spec_class
    class PaintSpec(Spec):
        """Paint."""

        wall: str = argument("Wall.")
        colour: Colour = option("Colour.", default=Colour.RED)

    assert PaintSpec(wall="w", colour="blue").colour is Colour.BLUE
    with pytest.raises(ValueError, match="red or blue"):
        PaintSpec(wall="w", colour="green")


def test_help_of_every_command_loads_no_heavy_library():
    code = (
        "import sys\nfrom pipelines.cli.main import main\n"
        f"for stage in {STAGES}: main([stage, '--help'], standalone_mode=False)\n"
        "heavy = {'ray', 'torch', 'transformers', 'pyarrow', 'faiss', 'numpy'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
