"""What the Markdown files promise by themselves: links, names, commands and sizes.

The README's words are counted as `wc -w` counts them: everything between spaces, code and table
bars included.
"""

import ast
import re
from pathlib import Path

import pytest

from pipelines import STAGES
from pipelines.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "deploy/**/*.md", "tests/bench/*.md")
    for page in ROOT.glob(pattern)
)
GUIDES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # history keeps old names
MAX_README_WORDS = 1000
TERMS = (
    "witness",
    "leaders",
    "certificate",
    "space",
    "recipe",
    "quarantine",
    "generation",
    "unit",
    "gate",
    "effort",
    "exit codes",
)
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^ *(?:\$ )?|`|bin/)sbert ([a-z]+)([^`\n#|;&]*)", re.MULTILINE)
PYTHON_FILE = re.compile(r"`((?:sbert_core|workers|pipelines|tests)/[\w/]+\.py)`")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    """The text without fenced blocks: a comment in one is not a heading."""
    return FENCED.sub("", text)


def anchors(text: str) -> set[str]:
    """Names of headings as GitHub links them: lower case, hyphens for spaces, numbered repeats."""
    found: set[str] = set()
    for heading in HEADING.findall(without_code(text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        name, number = slug, 0
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def relative_links(page: Path) -> list[str]:
    return [link for link in LINK.findall(without_code(read(page))) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_relative_links_and_anchors_resolve(page):
    broken = []
    for link in relative_links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_there = target.exists() and target.is_relative_to(ROOT)
        if not is_there or (anchor and anchor not in anchors(read(target))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_commands_and_options_exist(page):
    unknown = []
    for name, words in COMMAND.findall(read(page)):
        if name not in main.commands:
            unknown.append(name)
            continue
        known = {option for found in main.commands[name].params for option in found.opts}
        own = words.partition(" -- ")[0]  # what follows belongs to the run that is submitted
        options = re.findall(r"(?<!\S)--[a-z][a-z-]*", own)
        unknown += [f"{name} {option}" for option in options if option not in known | {"--help"}]
    assert not unknown


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_named_python_files_exist(page):
    missing = [name for name in PYTHON_FILE.findall(read(page)) if not (ROOT / name).is_file()]
    assert not missing


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_python_blocks_are_python(page):
    for _, language, code in FENCED.findall(read(page)):
        if language == "python":
            ast.parse(code)


def test_readme_is_short():
    assert len(read(ROOT / "README.md").split()) <= MAX_README_WORDS


def test_readme_defines_every_term():
    section = read(ROOT / "README.md").partition("## Terminology")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", section, re.MULTILINE))
    assert [term for term in rows if term not in ("word",)] == list(TERMS)
    assert all(len(rows[term].split()) > 3 for term in TERMS)


def test_korean_readme_follows_the_english_one():
    english, korean = (ROOT / name for name in ("README.md", "README.ko.md"))
    levels = [
        re.findall(r"^(#+) ", without_code(read(page)), re.MULTILINE) for page in (english, korean)
    ]
    assert levels[0] == levels[1]
    links = [
        [link for link in relative_links(page) if not link.startswith("README")]
        for page in (english, korean)
    ]
    assert links[0] == links[1]
    stages = re.findall(r"^\| `sbert (\w+)", read(korean), re.MULTILINE)
    assert tuple(stages) == STAGES
