"""An update that cannot succeed is not tried twice; one that may is."""

from dataclasses import dataclass, replace

import pytest
from support.synthetic import random_vectors, write_vectors

from pipelines.artifacts.errors import GateFailed
from pipelines.artifacts.writer import Writer
from pipelines.runtime.failure_cache import OUTCOME, replay_or_record
from sbert_core.errors import InvalidInput, TransientError


@dataclass(frozen=True)
class Spec:
    limit: int = 1
    address: str | None = None


@pytest.fixture
def out(tmp_path):
    """An output with something published in it."""
    return write_vectors(tmp_path / "out", random_vectors(3, 4))


def run(out, error=None, spec=None, identity="one", work=()):
    """Whether the job was tried. work: files it leaves behind."""
    tried = []
    try:
        with Writer.claim(out) as writer, replay_or_record(writer, spec or Spec(), identity):
            tried.append(True)
            for name in work:
                writer.storage.put(f"_work/{name}", b"half done")
            if error is not None:
                raise error
    except (ValueError, RuntimeError, OSError) as found:
        return bool(tried), found
    return bool(tried), None


@pytest.mark.parametrize("kind", [InvalidInput, GateFailed])
def test_refused_update_repeated_is_not_tried(out, kind):
    assert run(out, kind("too few"), work=["a"])[0]
    for _ in range(2):
        tried, error = run(out)
        assert (tried, type(error)) == (False, kind)
        assert str(error).startswith("too few (as before")


@pytest.mark.parametrize(
    "change",
    [
        lambda out: {"identity": "two"},  # another corpus
        lambda out: {"spec": replace(Spec(), limit=2)},
        lambda out: (out / "_work" / "a").unlink() or {},
        lambda out: (out / "_work" / "b").write_bytes(b"more") and {},
        lambda out: (out / "_manifest.json").touch() or {},
        lambda out: (out / OUTCOME).unlink() or {},
        lambda out: (out / OUTCOME).write_text("{torn") and {},
        lambda out: (out / OUTCOME).write_text("[]") and {},
    ],
)
def test_refused_update_after_any_change_is_tried(out, change):
    run(out, InvalidInput("repeated id"), work=["a"])
    assert run(out, **change(out)) == (True, None)
    assert not (out / OUTCOME).exists()


def test_refused_update_on_another_cluster_is_not_tried(out):
    run(out, InvalidInput("repeated id"))
    assert not run(out, spec=replace(Spec(), address="elsewhere:6379"))[0]


@pytest.mark.parametrize(
    "error",
    [TransientError("no cluster"), ValueError("odd"), RuntimeError("odd"), OSError(28, "full")],
)
def test_errors_of_the_moment_are_not_recorded(out, error):
    run(out, error)
    assert not (out / OUTCOME).exists()


def test_first_run_that_is_refused_leaves_nothing(tmp_path):
    assert run(tmp_path / "new", InvalidInput("bad"))[0]
    assert not (tmp_path / "new").exists()
