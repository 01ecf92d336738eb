"""Parquet copies of text files, made when rows of them must be read.

In:  a corpus, the columns of a job, and a function that runs the tasks.
Out: names of the copies, and the files that are left out as corrupt.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipelines.embed.spec import EmbedSpec
from sbert_core.corpus.columns import FIELD
from sbert_core.corpus.errors import CorruptFile
from sbert_core.corpus.files import Corpus, CorpusFile, Format
from sbert_core.corpus.formats import ConvertedFile
from sbert_core.corpus.row_filter import RowFilter

# Arguments of workers.embed.staging.stage_file.
StageCall = tuple[str, CorpusFile, list[str], list[str], str, str]


@dataclass(kw_only=True)
class Staging:
    """Which files of a corpus were copied, and which cannot be read.

    place, folder: of the copies. stage: runs workers.embed.staging.stage_file for each call.
    copies: by path the name in `place`. texts: by path what a copy holds. corrupt: by path why.
    """

    spec: EmbedSpec
    corpus: Corpus
    place: str
    folder: str
    stage: Callable[[list[StageCall]], list[ConvertedFile | CorruptFile]]
    copies: dict[str, str] = field(default_factory=dict)
    texts: dict[str, ConvertedFile] = field(default_factory=dict)
    corrupt: dict[str, str] = field(default_factory=dict)

    def copy(self, files: Iterable[CorpusFile]) -> None:
        """Copy the files that are neither Parquet nor copied; `leave_out` for corrupt ones."""
        todo = [
            file
            for file in files
            if file.format is not Format.PARQUET
            and file.path not in self.copies
            and file.path not in self.corrupt
        ]
        if not todo:
            return
        texts = [*FIELD.findall(self.spec.template), self.spec.id_column or "id"]
        where = RowFilter(self.spec.where).columns if self.spec.where else ()
        columns = [*texts, *self.spec.carried.values(), *where]
        start = len(self.copies) + len(self.corrupt)
        names = [f"{self.folder}/{start + n:06d}.parquet" for n in range(len(todo))]
        found = self.stage(
            [
                (self.corpus.folder, file, columns, texts, self.place, name)
                for file, name in zip(todo, names, strict=True)
            ]
        )
        for file, name, text in zip(todo, names, found, strict=True):
            if isinstance(text, CorruptFile):
                self.leave_out(text)
            else:
                self.copies[file.path], self.texts[file.path] = name, text

    def leave_out(self, error: CorruptFile) -> None:
        """Record a corrupt file of the corpus; raised without --skip-corrupt."""
        paths = {file.path for file in self.corpus.files}
        is_own = error.root == self.corpus.storage.uri and error.path in paths
        if not self.spec.skip_corrupt or not is_own or error.path in self.corrupt:
            raise error
        self.corrupt[error.path] = str(error)
