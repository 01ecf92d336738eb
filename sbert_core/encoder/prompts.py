"""Which text stands in front of a text, by a folder's own prompts."""

from sbert_core.encoder.checkpoint import Layout
from sbert_core.text import invalid_reason

# Names sentence-transformers folders give to such prompts, in order of preference.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
QUERY_PROMPTS = ("query", "question", "search_query")


def chosen_prompt(layout: Layout, prompt: str | None, name: str | None) -> str:
    """The prompt given, the one named, or the folder's default."""
    if prompt is not None:
        if prompt and (reason := invalid_reason(prompt)) not in (None, "blank"):
            raise ValueError(f"prompt {prompt!r} cannot be used: {reason}")
        return prompt
    name = name or layout.default_prompt_name
    if name is None:
        return ""
    if name not in layout.prompts:
        known = ", ".join(sorted(layout.prompts)) or "none"
        raise ValueError(f"the model has no prompt named {name!r}; it has: {known}")
    return layout.prompts[name]


def document_prompt(layout: Layout) -> str:
    """For the texts of a corpus."""
    return _first_of(layout, DOCUMENT_PROMPTS)


def query_prompt(layout: Layout) -> str:
    """For queries."""
    return _first_of(layout, QUERY_PROMPTS)


def _first_of(layout: Layout, names: tuple[str, ...]) -> str:
    named = [layout.prompts[name] for name in names if name in layout.prompts]
    return named[0] if named else chosen_prompt(layout, None, None)
