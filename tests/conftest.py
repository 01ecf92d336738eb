"""Fixtures of all tests: tiny encoders, texts, one Ray cluster.

torch and transformers are imported where they are used: the process that only hands tests to others
would wait for them first.
"""

import gc
import os
import re
import signal
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:1"  # as an embedded Ray has it
# Two processes of tests share two cores, and threads that wait for others spin: twice the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from support.s3 import BUCKET, S3Server
from support.warm_workers import worker_factory

# Until all tests are imported: imports leave no garbage, and to look for it takes a third of them.
gc.disable()

# A shell starts what runs in its background with SIGINT ignored, and a command under test would
# inherit that from us.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)


# Those that take longest, so that none is left alone at the end of a run of two processes.
LONGEST = ("test_train.py", "test_kills.py", "test_embed.py", "test_embed_s3.py")
MARK_OF_ALL = re.compile(r"^pytestmark = .*\bmark\.(ray|slow|long)\b", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """A file of which no test would run is not imported: imports take half the time."""
    if collection_path.suffix != ".py":
        return None
    marks = MARK_OF_ALL.findall(collection_path.read_text(encoding="utf-8"))
    return any(f"not {mark}" in config.option.markexpr for mark in marks) or None


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items):
    """Files without Ray first: a broken unit is seen at once.

    Then those that start a Ray of their own, then those that share one and stay connected; of both
    the longest first.
    """
    for item in items:
        if "s3_is_up" in item.fixturenames:  # the store takes seconds to start
            item.add_marker(pytest.mark.slow)
    with_ray = {item.path for item in items if item.get_closest_marker("ray") is not None}
    sharing = {item.path for item in items if "ray_address" in item.fixturenames}

    def place(item):
        name = item.path.name
        length = LONGEST.index(name) if name in LONGEST else len(LONGEST)
        return item.path in with_ray, item.path in sharing, length

    items.sort(key=place)


def pytest_collection_finish():
    """What was imported stays: collections that visit it took a fifth of the time of all tests."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def plain_encoder_folder(tmp_path_factory):
    """family -> folder of a plain Hugging Face encoder."""
    from support.encoders import tiny_model, tiny_tokenizer  # noqa: PLC0415

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
    from support.encoders import tiny_tokenizer  # noqa: PLC0415
    from tokenizers import processors  # noqa: PLC0415

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
    from pipelines.artifacts.models import demo_model_folder  # noqa: PLC0415

    return demo_model_folder()


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts of 1 to about 90 tokens, most of them short, seeded."""
    import torch  # noqa: PLC0415
    from support.encoders import WORDS  # noqa: PLC0415

    torch.manual_seed(1)
    lengths = (torch.rand(60).pow(3) * 80).int() + 1
    picks = [torch.randint(len(WORDS), (int(length),)) for length in lengths]
    return [" ".join(WORDS[word] for word in pick) for pick in picks]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory) -> S3Server:
    """One store for all tests that need one; its addresses are known before it runs."""
    return S3Server(tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="session")
def s3_is_up(s3_server):
    with s3_server.known():
        s3_server.start()
        s3_server.wait_until_up()
    yield
    s3_server.kill()


@pytest.fixture(scope="module")
def bucket(s3_server, s3_is_up, request):
    """A folder of the store for the tests of a file, with the store's keys in the environment."""
    with s3_server.known():
        yield f"{BUCKET}/{request.module.__name__.rpartition('.')[2]}"


# Every process of Ray's measures and reports; on two cores that is felt.
QUIET_CLUSTER = {
    "RAY_metrics_report_interval_ms": "600000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_enable_metrics_collection": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "60000",
}


@pytest.fixture(scope="session")
def ray_cluster(s3_server):
    """One Ray for all tests of jobs, in processes of its own, which know the store's keys."""
    with pytest.MonkeyPatch.context() as patch, worker_factory() as factory:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        for name, value in QUIET_CLUSTER.items():
            patch.setenv(name, value)
        with s3_server.known():
            cluster = start_cluster(factory.node_options)
        try:
            factory.wait_until_ready()
            yield cluster.address
        finally:
            cluster.shutdown()


def start_cluster(options):
    """A cluster of one node; Ray gives its node 30 s to start, which a busy machine may need."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    node = {"num_cpus": 4, "object_store_memory": 200 * 2**20, "include_dashboard": False}
    node |= options
    for tries_left in (2, 1, 0):
        try:
            return Cluster(initialize_head=True, head_node_args=node)
        except Exception:  # noqa: BLE001 - of no class of its own
            if not tries_left:
                raise
    return None


@pytest.fixture(scope="module")
def ray_address(ray_cluster, tmp_path_factory):
    """The tests of a file stay connected, so that their jobs find warm workers."""
    from pipelines.runtime.session import ray_session  # noqa: PLC0415

    with ray_session(tmp_path_factory.mktemp("ray"), address=ray_cluster):
        yield ray_cluster
