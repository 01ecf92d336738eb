"""Tiny seeded encoders, built here: no test downloads anything."""

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    CamembertConfig,
    CamembertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    EuroBertConfig,
    EuroBertModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    GteConfig,
    GteModel,
    JinaEmbeddingsV3Config,
    JinaEmbeddingsV3Model,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    NomicBertConfig,
    NomicBertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

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
SHARED_HEADS = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
MARKS = {"bos_token_id": 2, "eos_token_id": 3}
LAYER_FAMILIES = {
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
# Windows of attention are shorter than most texts, so that they matter.
INTERFACE_FAMILIES = {
    "modernbert": lambda: ModernBertModel(
        ModernBertConfig(
            **SIZES,
            **MARKS,
            cls_token_id=2,
            sep_token_id=3,
            local_attention=8,
            global_attn_every_n_layers=2,
        )
    ),
    "eurobert": lambda: EuroBertModel(EuroBertConfig(**SHARED_HEADS, **MARKS)),
    "nomic_bert": lambda: NomicBertModel(NomicBertConfig(**SIZES)),
    "gte": lambda: GteModel(GteConfig(**SIZES)),
    "jina_embeddings_v3": lambda: JinaEmbeddingsV3Model(JinaEmbeddingsV3Config(**SIZES)),
    "qwen3": lambda: Qwen3Model(Qwen3Config(**SHARED_HEADS, **MARKS)),
    "qwen3-window": lambda: Qwen3Model(
        Qwen3Config(
            **SHARED_HEADS,
            **MARKS,
            use_sliding_window=True,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
        )
    ),
    "gemma3": lambda: Gemma3TextModel(
        Gemma3TextConfig(
            **SHARED_HEADS,
            **MARKS,
            sliding_window=8,
            layer_types=["sliding_attention", "full_attention"],
            use_bidirectional_attention=True,
        )
    ),
}
FLAT_FAMILIES = LAYER_FAMILIES | INTERFACE_FAMILIES
PADDED_FAMILIES = {
    "albert": lambda: AlbertModel(AlbertConfig(**SIZES, embedding_size=16)),
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
