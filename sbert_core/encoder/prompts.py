"""The prompt that goes in front of a text, from the settings of the model's folder."""

from sbert_core.encoder.checkpoint import ModelConfig
from sbert_core.encoder.tokenizer import TextTokenizer
from sbert_core.text import invalid_reason

# Names sentence-transformers folders give to such prompts, in order of preference.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
QUERY_PROMPTS = ("query", "question", "search_query")


def resolve_prompt(config: ModelConfig, prompt: str | None, name: str | None) -> str:
    """`prompt` if given, else the folder's prompt of that name, else its default or "".

    Raises ValueError for a prompt with invalid characters and for an unknown name.
    """
    if prompt is not None:
        if prompt and (reason := invalid_reason(prompt)) not in (None, "blank"):
            raise ValueError(f"prompt {prompt!r} cannot be used: {reason}")
        return prompt
    name = name or config.default_prompt_name
    if name is None:
        return ""
    if name not in config.prompts:
        known = ", ".join(sorted(config.prompts)) or "none"
        raise ValueError(f"the model has no prompt named {name!r}; it has: {known}")
    return config.prompts[name]


def document_prompt(config: ModelConfig) -> str:
    """The prompt for the texts of a corpus; the default one if the folder has none for them."""
    return _first_named(config, DOCUMENT_PROMPTS)


def query_prompt(config: ModelConfig) -> str:
    """The prompt for queries; the default one if the folder has none for them."""
    return _first_named(config, QUERY_PROMPTS)


def _first_named(config: ModelConfig, names: tuple[str, ...]) -> str:
    named = [config.prompts[name] for name in names if name in config.prompts]
    return named[0] if named else resolve_prompt(config, None, None)


def num_skipped_tokens(config: ModelConfig, tokenizer: TextTokenizer, prompt: str) -> int:
    """Leading tokens that pooling leaves out: the prompt's, if the folder requires it.

    Raises ValueError for a prompt that leaves no room for text.
    """
    num_tokens = tokenizer.num_prompt_tokens(prompt)
    if num_tokens >= tokenizer.max_length - 1:
        raise ValueError(
            f"a prompt of {num_tokens} tokens leaves no room for text in max_length "
            f"{tokenizer.max_length}; shorten the prompt or raise max_length"
        )
    return 0 if config.include_prompt else num_tokens


def num_text_tokens(tokenizer: TextTokenizer, prompt: str) -> int:
    """Tokens of text that fit the model's length beside the prompt and special tokens."""
    num_prompt_tokens = tokenizer.num_prompt_tokens(prompt)
    return tokenizer.max_length - tokenizer.num_special - max(0, num_prompt_tokens - 1)
