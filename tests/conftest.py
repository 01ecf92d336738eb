"""Fixtures of all tests: tiny encoders, texts, one Ray cluster."""

import os
import signal
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:1"  # as an embedded Ray has it

import pytest
import torch
from support.encoders import WORDS, tiny_model, tiny_tokenizer
from tokenizers import processors

from pipelines.artifacts.models import demo_model

# A shell starts what runs in its background with SIGINT ignored, and a command under test would
# inherit that from us.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


def pytest_collection_modifyitems(items):
    """Files that start Ray first, the longest at the front: none is left alone at the end."""
    longest = ("test_train.py", "test_kills.py", "test_embed.py", "test_embed_s3.py")

    def place(item):
        name = item.path.name
        if name in longest:
            return longest.index(name)
        return len(longest) + (item.get_closest_marker("ray") is None)

    items.sort(key=place)


@pytest.fixture(scope="session")
def plain_encoder_folder(tmp_path_factory):
    """family -> folder of a plain Hugging Face encoder."""
    folders: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in folders:
            folders[family] = tmp_path_factory.mktemp(f"plain-{family}")
            tiny_model(family).save_pretrained(folders[family])
            tiny_tokenizer().save_pretrained(folders[family])
        return folders[family]

    return folder


@pytest.fixture(scope="session")
def bert_folder(plain_encoder_folder) -> Path:
    return plain_encoder_folder("bert")


@pytest.fixture(scope="session")
def pair_folder(plain_encoder_folder, tmp_path_factory):
    """family -> a plain encoder whose tokenizer joins two texts."""

    def folder(family):
        copy = tmp_path_factory.mktemp("pair")
        for path in plain_encoder_folder(family).iterdir():
            (copy / path.name).write_bytes(path.read_bytes())
        tokenizer = tiny_tokenizer()
        marks = [(mark, tokenizer.convert_tokens_to_ids(mark)) for mark in ("<s>", "</s>")]
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=marks
        )
        tokenizer.save_pretrained(copy)
        return copy

    return folder


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """The real model of the demo extra."""
    return demo_model()


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts of 1 to about 90 tokens, most of them short, seeded."""
    torch.manual_seed(1)
    lengths = (torch.rand(60).pow(3) * 80).int() + 1
    picks = [torch.randint(len(WORDS), (int(length),)) for length in lengths]
    return [" ".join(WORDS[word] for word in pick) for pick in picks]


@pytest.fixture(scope="session")
def ray_cluster():
    """One Ray for all tests of jobs, in processes of its own."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - only jobs that need Ray pay for it

    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 4,
            "object_store_memory": 200 * 2**20,
            "include_dashboard": False,
        },
    )
    yield cluster.address
    cluster.shutdown()
    os.environ.pop("RAY_AUTH_MODE")
    if before is not None:
        os.environ["RAY_AUTH_MODE"] = before


@pytest.fixture(scope="module")
def ray_address(ray_cluster, tmp_path_factory):
    """The tests of a file stay connected, so that their jobs find warm workers."""
    from pipelines.runtime.session import ray_session  # noqa: PLC0415

    with ray_session(tmp_path_factory.mktemp("ray"), address=ray_cluster):
        yield ray_cluster
