"""Models on the padded path: what their forward keeps, how many run at once, what is claimed."""

import random
import shutil
import threading
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from support.encoders import FLAT_FAMILIES, PADDED_FAMILIES, SIZES, WORDS, tiny_tokenizer
from support.speed import cases
from torch import nn

from sbert_core.encoder.backbone import REENTRANT, is_reentrant
from sbert_core.encoder.batching import BatchLayout
from sbert_core.encoder.cross_encoder import CrossEncoder
from sbert_core.encoder.encoder import Encoder
from sbert_core.encoder.probe import is_batch_invariant

LENGTH = 200
LONG = SIZES | {"max_position_embeddings": LENGTH + 2}
CONFIGS = {
    "big_bird": lambda: transformers.BigBirdConfig(
        **LONG, attention_type="block_sparse", block_size=4, num_random_blocks=1
    ),
    "deberta-v2": lambda: transformers.DebertaV2Config(
        **LONG, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False
    ),
    "longformer": lambda: transformers.LongformerConfig(**LONG, attention_window=8),
}

QUICK = ("bert", "albert", "longformer")


def save(model: nn.Module, folder) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.eval().save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = LENGTH
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def folder_of(plain_encoder_folder, tmp_path_factory):
    """family -> folder of a tiny encoder."""
    made = {}

    def folder(family):
        if family not in CONFIGS:
            return plain_encoder_folder(family)
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            save(transformers.AutoModel.from_config(CONFIGS[family]()), made[family])
        return made[family]

    return folder


@pytest.fixture(scope="module")
def long_texts() -> list[str]:
    """1 to 180 tokens, so that batches are short and long."""
    rng = random.Random(0)
    return [" ".join(rng.choices(WORDS, k=1 + int(rng.random() ** 3 * 180))) for _ in range(120)]


@pytest.mark.parametrize("family", [*PADDED_FAMILIES, *CONFIGS])
def test_batch_invariance_of_the_padded_path_is_not_claimed_even_if_a_trial_agrees(
    family, folder_of, monkeypatch
):
    """A few texts agreed for Longformer, and others did not."""
    monkeypatch.setattr("sbert_core.encoder.encoder.is_batch_invariant", lambda *_: True)
    encoder = Encoder.load(folder_of(family), threads=1)
    assert encoder.layout is BatchLayout.PADDED
    assert not encoder.batch_invariant


@pytest.mark.parametrize(
    ("family",),
    cases(product([*FLAT_FAMILIES, *PADDED_FAMILIES, *CONFIGS]), lambda family: family in QUICK),
)
def test_batch_invariance_where_claimed_holds_for_many_texts(family, folder_of, long_texts):
    encoder = Encoder.load(folder_of(family), threads=1)
    together = encoder.encode(long_texts)
    alone = np.concatenate([encoder.encode([text]) for text in long_texts])
    assert not encoder.batch_invariant or np.array_equal(alone, together)


@pytest.mark.parametrize(
    ("family",),
    cases(product([*PADDED_FAMILIES, *CONFIGS]), lambda family: family == "big_bird"),
)
def test_vectors_do_not_follow_from_what_the_model_met_before(family, folder_of, long_texts):
    """BigBird kept the attention of its first short batch."""
    by_length = sorted(long_texts, key=len)
    want = Encoder.load(folder_of(family), threads=1).encode(by_length)
    used = Encoder.load(folder_of(family), threads=1)
    used.encode(["the", "of all"])
    np.testing.assert_array_equal(used.encode(by_length), want)
    alone = np.concatenate([used.encode([text]) for text in by_length])
    np.testing.assert_allclose(alone, want, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "want"), [("big_bird", 1), ("longformer", 1), ("albert", 3), ("bert", 3)]
)
def test_only_families_known_to_be_reentrant_run_several_batches_at_once(family, want, folder_of):
    assert Encoder.load(folder_of(family), threads=3).num_parallel == want


@pytest.mark.slow
@pytest.mark.parametrize("family", [*PADDED_FAMILIES, *CONFIGS])
def test_trial_of_batch_invariance_finds_padding_out(family, folder_of):
    encoder = Encoder.load(folder_of(family), threads=1)
    assert not is_batch_invariant(encoder, SIZES["vocab_size"], encoder.max_length)


class Busy:
    """A forward that notes how many threads were in it at once."""

    def __init__(self, forward) -> None:
        self.forward = forward
        self.inside = threading.Semaphore(1)
        self.was_shared = False

    def __call__(self, *arguments, **options):
        if not self.inside.acquire(timeout=0.05):  # another one has it and takes its time
            self.was_shared = True
            return self.forward(*arguments, **options)
        try:
            threading.Event().wait(0.1)
            return self.forward(*arguments, **options)
        finally:
            self.inside.release()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["big_bird", "longformer"])
def test_model_of_an_unknown_family_runs_one_batch_at_a_time(family, folder_of, long_texts):
    encoder = Encoder.load(folder_of(family), threads=3, token_budget=1000)
    want = Encoder.load(folder_of(family), threads=1, token_budget=1000).encode(long_texts)
    encoder._model.forward = busy = Busy(encoder._model.forward)
    np.testing.assert_array_equal(encoder.encode(long_texts), want)
    assert not busy.was_shared


@pytest.mark.slow
def test_cross_encoder_of_an_unknown_family_runs_one_batch_at_a_time(
    pair_folder, long_texts, tmp_path, monkeypatch
):
    folder = shutil.copytree(pair_folder("bert"), tmp_path / "pairs")
    config = CONFIGS["big_bird"]()
    save(transformers.BigBirdForSequenceClassification(config), tmp_path / "model")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tmp_path / "model" / name, folder / name)
    monkeypatch.setitem(CrossEncoder.predict.__globals__["TOKEN_BUDGET"], "cpu", 400)
    pairs = list(zip(long_texts[:40], long_texts[40:80], strict=True))
    one = CrossEncoder.load(folder, num_outputs=2, threads=1)
    several = CrossEncoder(one.model, one.tokenizer, threads=3)
    want = one.predict(pairs)
    one.model.forward = busy = Busy(one.model.forward)
    np.testing.assert_array_equal(several.predict(pairs), want)
    assert not busy.was_shared


@pytest.mark.slow
def test_models_of_known_families_run_several_batches_at_once(folder_of, long_texts):
    encoder = Encoder.load(folder_of("albert"), threads=2, token_budget=100)
    encoder._model.forward = busy = Busy(encoder._model.forward)
    encoder.encode(long_texts)
    assert busy.was_shared


def state_of(model: nn.Module) -> dict[str, dict]:
    """What a forward could leave in a model: attributes and layers, by identity."""
    return {
        name: {key: id(value) for key, value in part.__dict__.items()}
        | {f"layer {key}": id(value) for key, value in part._modules.items()}
        | {f"buffer {key}": (id(value), value._version) for key, value in part._buffers.items()
           if value is not None}
        for name, part in model.named_modules()
    }  # fmt: skip


@pytest.mark.parametrize("family", sorted(REENTRANT))
def test_forward_of_a_known_family_leaves_no_trace_in_the_model(family, folder_of, long_texts):
    encoder = Encoder.load(folder_of(family), threads=1)
    model = encoder._model
    assert is_reentrant(model)
    before = state_of(model)
    for text in ("the", long_texts[0], " ".join(long_texts)):
        ids = torch.from_numpy(encoder.tokenize([text]).ids_T)[None]
        with torch.inference_mode():
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert state_of(model) == before


def test_positions_that_the_longest_text_decides_are_not_flat_and_run_one_at_a_time(tmp_path):
    torch.manual_seed(0)
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
    }
    save(transformers.GteModel(transformers.GteConfig(**LONG, rope_parameters=rope)), tmp_path)
    encoder = Encoder.load(tmp_path, threads=2)
    assert (encoder.layout, encoder.num_parallel) == (BatchLayout.PADDED, 1)
    assert not encoder.batch_invariant


@pytest.mark.parametrize("family", ["ibert", "canine"])
def test_family_without_an_embedding_of_tokens_is_refused_with_the_remedy(family, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.AutoConfig.for_model(family, **sizes, intermediate_size=37)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"{family} models have no .* use a model of another"):
        Encoder.load(tmp_path)
