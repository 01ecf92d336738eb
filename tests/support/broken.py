"""A generator of broken inputs: files as disks, editors, other tools and bad intentions leave them.

In:  hypothesis, which draws cases.
Out: cases whose repr says everything: what is broken, where and how. A case breaks the same bytes
     every time, so a failure is repeated by running its case again.
"""

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from support.broken_files import (
    CSV_LINES,
    JSON_LINES,
    JobFile,
    Lines,
    Parquet,
    job_files,
    line_files,
    parquet_files,
)
from support.damage import Bytes, Damage, Json, damage


@dataclass(frozen=True)
class FileCase:
    """A broken file of rows, and what is done with it."""

    command: str
    options: tuple[str, ...]
    file: Parquet | Lines


@dataclass(frozen=True)
class JobCase:
    """A broken job file."""

    file: JobFile
    is_planned: bool


@dataclass(frozen=True)
class FolderCase:
    """A folder some of whose files are broken, and what is done with it."""

    folder: str
    command: str
    damages: tuple[Damage, ...]

    def is_of_data(self, root: Path) -> bool:
        """Is nothing broken but files whose hashes are known?"""
        targets = [damage.target(root / self.folder) for damage in self.damages]
        return self.folder != "model" and all(path.suffix != ".json" for path in targets)


EMBED_OPTIONS = [
    (), (), (), ("--skip-corrupt",), ("--plan",), ("--id", "content"), ("--carry", "year"),
    ("--where", "year > 3"), ("--limit", "7"), ("--plan", "--distinct", "unit"),
    ("--plan", "--skip-corrupt", "--text", "{text} {answer}"), ("--id-column", "year"),
]  # fmt: skip
FILE_COMMANDS = [*["embed"] * 12, *["queries", "metadata", "protect", "labelled", "prepare"] * 2,
                 "dedup"]  # fmt: skip
FOLDER_COMMANDS = {
    "vectors": ["index", "pairs", "against", "threshold", "report", "path", "export", "update",
                "cluster", "apply"],
    "index": ["search", "search", "queries", "grow index", "report"],
    "cells": ["search", "queries", "grow cells"],
    "pairs": ["cluster", "threshold pairs", "report pairs", "grow pairs"],
    "clusters": ["apply", "report clusters", "grow clusters"],
    "applied": ["apply again"],
    # A model that loads is started on Ray Data by one of them alone: ten seconds each time.
    "model": ["embed model", *["plan model", "search model"] * 4, "rerank"],
}  # fmt: skip


def file_cases(files: st.SearchStrategy[Parquet | Lines]) -> st.SearchStrategy[FileCase]:
    def options(command: str) -> st.SearchStrategy[tuple[str, ...]]:
        return st.sampled_from(EMBED_OPTIONS) if command == "embed" else st.just(())

    def case(command: str) -> st.SearchStrategy[FileCase]:
        return st.builds(FileCase, st.just(command), options(command), files)

    return st.sampled_from(FILE_COMMANDS).flatmap(case)


def folder_cases(*folders: str) -> st.SearchStrategy[FolderCase]:
    def case(folder: str) -> st.SearchStrategy[FolderCase]:
        commands = st.sampled_from(FOLDER_COMMANDS[folder])
        damages = st.lists(damage(), min_size=1, max_size=2).map(tuple)
        return st.builds(FolderCase, st.just(folder), commands, damages)

    return st.sampled_from(folders).flatmap(case)


# What was wrong once.
KNOWN: dict[str, list[FileCase | JobCase | FolderCase]] = {
    "parquet": [
        # A page that ends a file before its time, unannounced.
        FileCase("embed", (), Parquet("plain", "as it is", 2, (Bytes("flip", 2, b"E\xa0"),))),
        FileCase(
            "labelled", (), Parquet("decimals", "as it is", 3, (Bytes("insert", 136, b"PK"),))
        ),
        FileCase("embed", ("--limit", "7"), Parquet("plain", "two of a name", 0, ())),
        FileCase("queries", (), Parquet("large ids", "as it is", 2, ())),
        FileCase("metadata", (), Parquet("years in lists", "as it is", 0, ())),
        FileCase("prepare", (), Parquet("plain", "no rows", 4, ())),
    ],
    "csv": [FileCase("labelled", (), Lines(".tsv", 4, (), ()))],
    # Its reader dies of a null in the first line.
    "jsonl": [FileCase("queries", (), Lines(".jsonl", 0, ((0, b"null\n"),), ()))],
    "yaml": [
        JobCase(JobFile((), (Bytes("write over", 0, b"\0"),), ()), True),
        JobCase(JobFile(((42, True, "!x y"),), (), ()), True),
        JobCase(JobFile((), (), ("index.m=!!bool maybe",)), True),
    ],
    "artifact": [
        # Names that lead elsewhere: of a part, and of a file to be taken over.
        FolderCase("vectors", "pairs", (Damage(999, Json((450, 0, 0), "set", "../../elsewhere")),)),
        FolderCase(
            "applied", "apply again", (Damage(0, Json((450, 0, 0), "set", "../../elsewhere")),)
        ),
        FolderCase("vectors", "update", (Damage(0, "pickle"),)),
        FolderCase("vectors", "update", (Damage(300, Bytes("flip", 500, b"")),)),
        FolderCase("pairs", "grow pairs", (Damage(500, Bytes("flip", 500, b"")),)),
    ],
    "model": [],
}
# Each kind with its share of all cases.
KINDS: dict[str, tuple[float, st.SearchStrategy]] = {
    "parquet": (0.2, file_cases(parquet_files())),
    "csv": (0.12, file_cases(line_files(".csv", CSV_LINES))),
    "jsonl": (0.12, file_cases(line_files(".jsonl", JSON_LINES))),
    "yaml": (0.16, st.builds(JobCase, job_files(), st.booleans() | st.just(True))),
    "artifact": (0.25, folder_cases("vectors", "index", "cells", "pairs", "clusters", "applied")),
    "model": (0.15, folder_cases("model")),
}
