"""Damage to bytes, to JSON and to the files of a folder, drawn by hypothesis."""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from support.poison import Poison

PERMILLE = st.integers(0, 999)


# -- bytes -----------------------------------------------------------------------------------------

HOWS: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "cut": lambda data, at, fill: data[:at],
    "behead": lambda data, at, fill: data[at:],
    "flip": lambda data, at, fill: _over(data, at, bytes([data[at] ^ (1 << len(fill) % 8)])),
    "write over": lambda data, at, fill: _over(data, at, fill),
    "insert": lambda data, at, fill: data[:at] + fill + data[at:],
    "drop": lambda data, at, fill: data[:at] + data[at + len(fill) :],
    "repeat": lambda data, at, fill: data[:at] + data[max(0, at - len(fill)) :],
    "replace": lambda data, at, fill: fill,
}
FILLS = [
    b"\0", b"\xff", b"\xff" * 8, b"\0" * 512, b'"', b"\n", b"\r", b"{", b"PAR1", b"PK\3\4", b"null",
    b"\xef\xbb\xbf", b"\xff\xfe", b"9" * 40, b"../", b"\x80\x04.", b"", b"<html>",
]  # fmt: skip


def _over(data: bytes, at: int, fill: bytes) -> bytes:
    return data[:at] + fill + data[at + len(fill) :]


@dataclass(frozen=True)
class Bytes:
    """Damage to bytes. at: permille of the file."""

    how: str
    at: int
    fill: bytes

    def applied(self, data: bytes) -> bytes:
        if not data:
            return self.fill
        return HOWS[self.how](data, len(data) * self.at // 1000, self.fill)


def byte_damage() -> st.SearchStrategy[Bytes]:
    fills = st.sampled_from(FILLS) | st.binary(max_size=12)
    return st.builds(Bytes, st.sampled_from(list(HOWS)), PERMILLE, fills)


# -- JSON ------------------------------------------------------------------------------------------

NASTY_WORDS = ["", "..", "../../elsewhere", "/etc/hostname", "~", "s3://", "s3://k:s@b/x", "gs://b",
               "file:///etc/hostname", "\0", "\ud800", "x" * 300, "NaN", "-1", "vectors", "index",
               "pairs", "clusters", "float32", "int8", "{text}", "{", "None"]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 7, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, float("nan"), 1e-9,
           float("inf")]  # fmt: skip


def json_values() -> st.SearchStrategy[Any]:
    leaves = st.one_of(
        st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(NASTY_WORDS)
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(NASTY_WORDS[:6]), inner, max_size=2)
        ),
        max_leaves=4,
    )


@dataclass(frozen=True)
class Json:
    """An edit of a JSON document. steps: permille of the children at each level down."""

    steps: tuple[int, ...]
    how: str
    value: Any

    def applied(self, data: bytes) -> bytes:
        try:
            document = json.loads(data)
        except ValueError:  # broken already
            return json.dumps(self.value).encode()
        parent, key, node = None, None, document
        for step in self.steps:
            if not isinstance(node, dict | list) or not node:
                break
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            parent, key = node, keys[len(keys) * step // 1000]
            node = parent[key]
        if parent is None:
            return json.dumps(self.value).encode()
        if self.how == "set":
            parent[key] = self.value
        elif self.how == "add" and isinstance(node, dict):
            node["unheard of"] = self.value
        elif self.how == "add" and isinstance(node, list):
            node.append(self.value)
        elif self.how == "repeat" and isinstance(parent, list):
            parent.append(node)
        else:
            del parent[key]
        return json.dumps(document).encode()


def json_damage() -> st.SearchStrategy[Json]:
    steps = st.lists(PERMILLE, min_size=1, max_size=4).map(tuple)
    hows = st.sampled_from(["set", "set", "remove", "add", "repeat"])
    return st.builds(Json, steps, hows, json_values())


# -- files of a folder -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """To one file of a folder. file: permille of its files; change: or what stands in its place."""

    file: int
    change: Bytes | Json | str

    def target(self, folder: Path) -> Path:
        """Each file has a share, and the one that lists the others three."""
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix)
        files += [path for path in files if path.name == "_manifest.json"] * 2
        return files[len(files) * self.file // 1000]

    def done(self, folder: Path, mark: Path) -> None:
        path = self.target(folder)
        if (
            isinstance(self.change, Json)
            and path.suffix == ".json"
            or isinstance(self.change, Bytes)
        ):
            path.write_bytes(self.change.applied(path.read_bytes()))
        else:
            path.unlink()
            if self.change == "folder":
                path.mkdir()
            elif self.change == "loop":
                path.symlink_to(path)
            elif self.change == "pickle":
                path.write_bytes(pickle.dumps(Poison(mark)))


def damage(json_share: bool = True) -> st.SearchStrategy[Damage]:
    words = st.sampled_from(["gone", "folder", "loop", "pickle"])
    changes = [byte_damage(), *([json_damage(), json_damage()] if json_share else []), words]
    return st.builds(Damage, PERMILLE, st.one_of(changes))
