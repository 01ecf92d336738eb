"""Models and number formats that cannot be: exit code 2, one line, nothing left behind."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.embedding import rows_of, sentences, write_corpus
from support.static_models import write_static_model

from pipelines.cli.main import main
from sbert_core.encoder.encoder import Encoder


@pytest.fixture
def refuse(tmp_path):
    """Run a command that must be refused; the line it prints."""

    def run(*words):
        out = tmp_path / "out"
        result = CliRunner().invoke(main, [*map(str, words), "--out", str(out)])
        errors = [line for line in result.stderr.splitlines() if " INFO " not in line]
        assert (result.exit_code, len(errors)) == (2, 1), result.stderr
        assert errors[0].startswith("error: ")
        assert not out.exists()
        return errors[0]

    return run


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(20))})


@pytest.fixture
def static_folder(tmp_path):
    return write_static_model(tmp_path / "static")


@pytest.fixture
def unknown_folder(bert_folder, tmp_path):
    """A model with a module of someone's own."""
    folder = tmp_path / "unknown"
    Encoder.load(bert_folder).save(folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "custom_st.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def unpadded_folder(plain_encoder_folder, tmp_path):
    """A model whose texts are padded, without a token for it."""
    folder = shutil.copytree(plain_encoder_folder("albert"), tmp_path / "albert")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["pad_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_embed_names_module_and_remedy(refuse, corpus, unknown_folder):
    line = refuse("embed", corpus, "--model", unknown_folder)
    assert "custom_st.Transformer" in line
    assert "use a model made of" in line


def test_embed_names_the_missing_pad_token_and_remedy(refuse, corpus, unpadded_folder):
    line = refuse("embed", corpus, "--model", unpadded_folder)
    assert "no pad token; add one" in line


@pytest.mark.ray
def test_embed_names_formats_that_do_not_lose_digits(refuse, corpus, static_folder, ray_address):
    line = refuse(
        "embed", corpus, "--model", static_folder, "--precision", "int8", "--address", ray_address
    )
    assert "use float32 or auto" in line


@pytest.mark.ray
@pytest.mark.timeout(180)
def test_train_and_evaluate_name_model_and_remedy(
    refuse, static_folder, unknown_folder, unpadded_folder, bert_folder, ray_address, tmp_path
):
    texts = sentences(40)
    table = pa.table({"sentence1": texts[:20], "sentence2": texts[20:], "score": [0.5] * 20})
    pq.write_table(table, tmp_path / "pairs.parquet")
    shards = ["prepare", tmp_path / "pairs.parquet", "--format", "scored", "--address", ray_address]
    done = CliRunner().invoke(main, [*map(str, shards), "--out", str(tmp_path / "shards")])
    assert done.exit_code == 0, done.stderr
    for base, remedy in (
        (static_folder, "name a transformer as --base"),
        (unknown_folder, "use a model made of"),
        (unpadded_folder, "no pad token; add one"),
    ):
        train = ["train", tmp_path / "shards", "--base", base, "--objective", "cosine"]
        assert remedy in refuse(*train, "--address", ray_address)
    sts = ["--sts", tmp_path / "pairs.parquet", "--address", ray_address]
    assert "use a model made of" in refuse("evaluate", unknown_folder, *sts)
    assert "no pad token; add one" in refuse("evaluate", unpadded_folder, *sts)
    line = refuse("evaluate", bert_folder, *sts, "--precision", "float16")
    assert "use float32, bfloat16, int8" in line
