"""Options of `sbert demo`, checked when they are given."""

from pathlib import Path

from pipelines.options import ADDRESS, RAY_ADDRESS, PathKind, Spec, option, spec_class


@spec_class
class DemoSpec(Spec):
    """The whole flow on the docstrings of this machine's Python: train, embed, search, clean."""

    out: Path = option(
        "Folder for everything it makes.", default=Path("demo-out"), path=PathKind.OUTPUT
    )
    docstrings: int | None = option("Texts to embed; 4,000, or 1,000 with --small.", default=None)
    small: bool = option("Less of everything: under two minutes.", default=False)
    address: str | None = option(ADDRESS, default=None, envvar=RAY_ADDRESS)

    def check(self) -> None:
        if self.docstrings is not None and self.docstrings < 2:
            raise ValueError(f"docstrings is {self.docstrings}; a pair needs at least 2")
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"out is {self.out}, a file; give a folder, new or existing")
