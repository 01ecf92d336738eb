"""The examples in docstrings of the public classes run as they are written."""

import doctest
import subprocess
import sys

import pytest

import sbert_core
from sbert_core.encoder import cross_encoder, encoder


@pytest.fixture(scope="module")
def folders(bert_folder, pair_folder, tmp_path_factory):
    """The names that the examples use: folders of tiny saved models."""
    encoder_folder = tmp_path_factory.mktemp("doctest") / "encoder"
    encoder.Encoder.load(bert_folder).save(encoder_folder)
    cross_encoder_folder = tmp_path_factory.mktemp("doctest") / "cross-encoder"
    untrained = cross_encoder.CrossEncoder.load(pair_folder("bert"), num_outputs=1)
    untrained.save(cross_encoder_folder)
    return {"encoder_folder": encoder_folder, "cross_encoder_folder": cross_encoder_folder}


@pytest.mark.parametrize("module", [sbert_core, encoder, cross_encoder])
def test_examples_of_a_module_run_as_written(module, folders):
    result = doctest.testmod(module, extraglobs=folders)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.slow
def test_package_offers_its_classes_lazily():
    code = (
        "import sys, sbert_core; "
        "assert not {'torch', 'ray', 'transformers'} & set(sys.modules); "
        "assert set(sbert_core.__all__) <= set(dir(sbert_core)); "
        "from sbert_core import CrossEncoder, Encoder; "
        "assert 'torch' in sys.modules and 'ray' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_unknown_attribute_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError):
        sbert_core.Decoder  # noqa: B018
