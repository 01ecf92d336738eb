"""Tiny seeded encoders, built here: no test downloads anything."""

import os
import signal
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_API_SERVER_ADDRESS"] = "http://127.0.0.1:1"  # as an embedded Ray has it

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from pipelines.models import demo_model

# A shell starts what runs in its background with SIGINT ignored, and a command under test would
# inherit that from us.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)

WORDS = (
    "the a of and to in is it you that he was for on are with as his they be at one have this "
    "from or had by hot but some what there we can out other were all your when up use word how "
    "said an each she which do their time if will way about many then them would write like so"
).split()
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?"
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]  # after one unused word: MPNet and RoBERTa pad with 1
SIZES = {
    "vocab_size": 160,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
}
FLAT_FAMILIES = {
    "bert": lambda: BertModel(BertConfig(**SIZES)),
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZES)),
    "xlm-roberta": lambda: XLMRobertaModel(XLMRobertaConfig(**SIZES)),
    "camembert": lambda: CamembertModel(CamembertConfig(**SIZES)),
    "electra": lambda: ElectraModel(ElectraConfig(**SIZES, embedding_size=16)),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(
            vocab_size=160,
            dim=32,
            n_layers=2,
            n_heads=4,
            hidden_dim=64,
            max_position_embeddings=66,
            pad_token_id=1,
        )
    ),
    "mpnet": lambda: MPNetModel(MPNetConfig(**SIZES)),
}
PADDED_FAMILIES = {
    "modernbert": lambda: ModernBertModel(
        ModernBertConfig(**SIZES, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
    ),
}
FAMILIES = FLAT_FAMILIES | PADDED_FAMILIES


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Whole words, else letters, else unknown."""
    vocabulary = ["[unused]", *SPECIAL, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    ids = {word: number for number, word in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="<unk>", max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        model_max_length=64,
    )


def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """A random model whose weights are large enough for texts to differ."""
    torch.manual_seed(seed)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


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
    from pipelines.session import ray_session  # noqa: PLC0415

    with ray_session(tmp_path_factory.mktemp("ray"), address=ray_cluster):
        yield ray_cluster
