"""A cluster with a token: who has none is refused, who has it works."""

import subprocess

import pytest
from support.embedding import rows_of, sentences, write_corpus
from support.heads import BIN, sbert, stranger, token_head

pytestmark = [pytest.mark.timeout(300), pytest.mark.ray]


@pytest.fixture(scope="module")
def head():
    with token_head() as found:
        yield found


def test_client_without_the_token_is_refused_in_one_line(head, bert_folder, tmp_path):
    """Both at once: each asks Ray for half a minute."""
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    strangers = {"none": {}, "wrong": {"RAY_AUTH_TOKEN": "f" * 64}}
    clients = []
    for name, own in strangers.items():
        words = ["embed", corpus, "--model", bert_folder, "--out", tmp_path / name]
        clients.append(
            subprocess.Popen(
                [BIN / "sbert", *words, "--address", head.address],
                env={**stranger(tmp_path), "RAY_AUTH_MODE": "token", **own},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for name, process in zip(strangers, clients, strict=True):
        said = process.communicate(timeout=240)[1]
        assert process.returncode == 2, said
        [line] = said.strip().splitlines()
        assert line.startswith("error: ") and head.address in line and "token" in line
        assert not (tmp_path / name / "_manifest.json").exists()


def test_client_with_the_token_works(head, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(head.token)}
    words = ["embed", corpus, "--model", bert_folder, "--out", tmp_path / "out"]
    done = sbert(*words, "--address", head.address, env=stranger(tmp_path) | own)
    assert done.returncode == 0, done.stderr
    assert "5 vectors" in done.stdout
    assert head.token.read_text() not in done.stdout + done.stderr
