"""Files of deploy/ agree with each other, with the command line and with the pinned versions."""

import json
import re
import tomllib
from collections.abc import Iterator

import pytest
import yaml
from support.deploy_files import DEPLOY, ROOT, containers, instructions, ray_cluster, ray_job, texts

from pipelines.cli.main import main

pytestmark = pytest.mark.timeout(60)

REGISTRIES = "docker.io ghcr.io quay.io gcr.io nvcr.io registry.k8s.io pypi.org pytorch.org".split()


def image_name(image: str) -> tuple[str, str]:
    name, _, tag = image.rpartition(":")
    return name, tag


# -- images ------------------------------------------------------------------------------------


def test_images_are_this_version_by_plain_names():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wanted = {"cron": {"alpine/kubectl:1.34.1"}}
    for name, container in containers():
        ours = f"sbert-mill:{version}" + ("-cuda" if name.endswith(" gpu") else "")
        assert container["image"] in wanted.get(name, {ours}), name


def test_images_have_tags_that_stay_and_no_registry():
    bases = [rest.partition("=")[2] for word, rest in instructions() if rest.startswith("PYTHON_")]
    images = [container["image"] for _, container in containers()] + bases
    assert len(images) == 9
    for image in images:
        name, tag = image_name(image)
        assert name and tag and tag != "latest", image
        assert "." not in name.partition("/")[0], f"{image} names a registry"


def test_files_name_no_host_of_a_registry_and_no_path_of_a_machine():
    for name, text in texts().items():
        found = [host for host in REGISTRIES if host in text]
        assert not found, f"{name}: {found}"
        hosts = set(re.findall(r"https?://([^\s:/\"'`)]+)", text))
        assert hosts <= {"127.0.0.1", "localhost", "HEAD"}, f"{name}: {hosts}"
        assert not re.search(r"/(work|root|Users|home/(?!sbert))\b", text), name


def test_ray_versions_are_the_pinned_one():
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line
    )
    assert ray_cluster()["rayVersion"] == pinned["ray"]
    assert ray_job()["rayClusterSpec"]["rayVersion"] == pinned["ray"]


# -- Dockerfile --------------------------------------------------------------------------------


def test_dockerfile_copies_what_exists_and_what_is_sent():
    sent = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / source).exists() for source in copied)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {name.rstrip("*") for name in packages["packages"]["find"]["include"]} <= copied


def test_dockerfile_installs_pinned_versions_and_leaves_the_compiler_behind():
    steps = instructions()
    last = max(n for n, (word, _) in enumerate(steps) if word == "FROM")
    installs = [rest for word, rest in steps if word == "RUN" and "pip install" in rest]
    assert len(installs) == 3
    for command in installs:
        assert "-c constraints.txt" in command or "--no-deps ." in command, command
    assert "g++" in " ".join(rest for _, rest in steps[:last])
    assert "g++" not in " ".join(rest for _, rest in steps[last:])


def test_dockerfile_runs_as_a_numbered_user_with_a_health_check():
    steps = instructions()
    last = max(n for n, (word, _) in enumerate(steps) if word == "FROM")
    final = dict(steps[last:])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final["USER"])
    assert f"--uid {final['USER'].partition(':')[0]} " in " ".join(rest for _, rest in steps[last:])
    check = json.loads(final["HEALTHCHECK"].partition("CMD ")[2])
    assert check[:2] == ["bash", "-c"]
    assert json.loads(final["ENTRYPOINT"]) == ["tini", "--"]
    assert json.loads(final["CMD"])[0] == "sbert"
    for tool in ("tini", "procps", "wget", "bash"):  # of health check, hooks and KubeRay
        assert re.search(rf"\b{tool}\b", " ".join(rest for w, rest in steps[last:] if w == "RUN"))


# -- the command line --------------------------------------------------------------------------


def sbert_calls() -> Iterator[tuple[str, list[str]]]:
    """Every `sbert ...` of the files: where it stands, and its words."""
    for name, text in texts().items():
        joined = re.sub(r"\\\n\s*", " ", text)
        for found in re.finditer(r"(?<!-n)(?:^|[\s`/\"\[])sbert (?=[a-z-])([^`\n&|;]*)", joined):
            yield name, found[1].replace("]", " ").split()


def test_every_option_of_sbert_in_these_files_exists():
    seen = set()
    for name, words in sbert_calls():
        command, *rest = words
        if command not in main.commands:
            assert not any(word.startswith("--") for word in rest), f"{name}: sbert {words}"
            continue
        seen.add(command)
        for word in rest:
            if word == "--":  # what follows is for the run
                assert command == "submit"
                command = "run"
            elif word.startswith("--") and word != "--help":
                known = {option for p in main.commands[command].params for option in p.opts}
                assert word.partition("=")[0] in known, f"{name}: sbert {command} {word}"
    assert {"run", "submit", "doctor", "init"} <= seen


# -- YAML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in texts() if name.endswith((".yaml", ".yml"))])
def test_yaml_has_no_key_twice(name):
    """A second one would silently win."""
    roots = list(yaml.compose_all(texts()[name]))
    assert roots
    for root in roots:
        check_keys(root)


def check_keys(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"line {node.start_mark.line + 1}: {keys}"
        for _, value in node.value:
            check_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            check_keys(value)
