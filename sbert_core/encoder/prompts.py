"""The prompt that goes in front of a text, from the settings of the model's folder."""

from sbert_core.encoder.checkpoint import ModelConfig
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
