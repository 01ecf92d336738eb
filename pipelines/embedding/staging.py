"""Files without row ranges -> Parquet copies, made when rows of them must be read.

In:  a goal, and what writes the copies.
Out: names of copies in the goal's workplace, and the files that are left out as corrupt.
"""

from collections.abc import Callable, Iterable

from pipelines.embedding.goal import Goal
from sbert_core.corpus.files import CorpusFile, Format
from sbert_core.corpus.formats import TextFile
from sbert_core.corpus.rows import CorruptFile


class Staging:
    """What was copied for a goal, and what cannot be read.

    texts: what each copied file holds; copies: its name in the workplace. corrupt: reasons.
    """

    def __init__(self, goal: Goal, stage: Callable[..., list[TextFile | CorruptFile]]) -> None:
        self.goal = goal
        self.texts: dict[str, TextFile] = {}
        self.copies: dict[str, str] = {}
        self.corrupt: dict[str, str] = {}
        self._stage = stage

    @property
    def place(self) -> str:
        return self.goal.workplace

    def copy(self, files: Iterable[CorpusFile]) -> None:
        """Copy those that are neither Parquet nor copied; a corrupt one is left out or raised."""
        todo = [
            file
            for file in files
            if file.format is not Format.PARQUET
            and file.path not in self.copies
            and file.path not in self.corrupt
        ]
        if not todo:
            return
        start = len(self.copies) + len(self.corrupt)
        names = [f"{self.goal.work}/staged/{start + n:06d}.parquet" for n in range(len(todo))]
        found = self._stage(self.goal.corpus, todo, self.goal.spec, self.place, names)
        for file, name, text in zip(todo, names, found, strict=True):
            if isinstance(text, CorruptFile):
                self.leave_out(text)
            else:
                self.copies[file.path], self.texts[file.path] = name, text

    def leave_out(self, error: CorruptFile) -> None:
        """Plan without this file from now on; raised again if that is not allowed."""
        corpus = self.goal.corpus
        is_own = error.root == corpus.storage.uri and error.path in {f.path for f in corpus.files}
        if not self.goal.spec.skip_corrupt or not is_own or error.path in self.corrupt:
            raise error
        self.corrupt[error.path] = str(error)
