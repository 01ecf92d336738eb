"""Words of the command line -> values; a ValueError says what is wrong with them."""


def words_of(text: str) -> tuple[str, ...]:
    """'a, b' as ('a', 'b')."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def numbers_of(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words_of(text))
    except ValueError:
        raise ValueError(f"{text!r} is not 256,128") from None


def range_of(text: str, mark: str = ",") -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(mark))
    except ValueError:
        raise ValueError(f"{text!r} is not LOW{mark}HIGH") from None
    return low, high


def band_of(text: str) -> tuple[float, float]:
    return range_of(text, ":")


def number_or_auto(text: str) -> int | None:
    try:
        return None if text == "auto" else int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number and not auto") from None


def unescaped(template: str) -> str:
    r"""A shell's '\n' and '\t' as the characters they mean."""
    return template.replace(r"\n", "\n").replace(r"\t", "\t")
