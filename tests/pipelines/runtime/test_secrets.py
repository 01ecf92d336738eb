"""Keys of a store: in no file, no line, no title of a process."""

import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.embedding import rows_of, sentences, write_corpus
from support.heads import sbert, stranger
from support.s3 import KEY, NO_SERVER, SECRET, WEED

from pipelines.cli.main import main
from sbert_core.storage import storage_at

pytestmark = [pytest.mark.timeout(300)]


class Watch(threading.Thread):
    """Looks for secrets while a job runs: in the titles of all processes and in Ray's files."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.words = [word.encode() for word in words]
        self.found: set[str] = set()
        self.files: set[str] = set()
        self.titles = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.3):
            titles = list(Path("/proc").glob("[0-9]*/cmdline"))
            logs = [path for path in self.folder.rglob("*") if path.suffix in LOGGED]
            self.titles = max(self.titles, len(titles))
            self.files |= {path.name for path in logs}
            for path in [*titles, *logs]:
                self._look(path)

    def _look(self, path: Path) -> None:
        try:
            data = path.read_bytes() if path.is_file() else b""
        except OSError:  # gone, or a process that has just ended
            return
        if any(word in data for word in self.words):
            self.found.add(str(path))

    def stop(self) -> None:
        self.over.set()
        self.join()


LOGGED = {".log", ".out", ".err", ".txt", ".json", ".yaml"}


@pytest.mark.ray
@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_credentials_are_in_no_file_line_or_title(bucket, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of([*sentences(30), None])})
    storage_at(f"{bucket}/corpus").put("x.parquet", (corpus / "x.parquet").read_bytes())
    home = Path(tempfile.mkdtemp(prefix="sb", dir="/tmp"))
    environment = {**stranger(home), "TMPDIR": str(home)}
    watch = Watch(home, [SECRET, KEY])
    watch.start()
    said = []
    try:
        for words, code in (
            (("embed", f"{bucket}/corpus", "--model", bert_folder, "--out", f"{bucket}/v"), 0),
            (("pairs", f"{bucket}/v", "--out", f"{bucket}/p", "--threshold", "0.5"), 0),
            (("report", f"{bucket}/v", "--out", tmp_path / "report.html"), 0),
            (("embed", f"{bucket}/none", "--model", bert_folder, "--out", f"{bucket}/w"), 2),
        ):
            done = sbert(*words, "--debug", "--json-log", env=environment)
            assert done.returncode == code, done.stderr
            said.append(done.stdout + done.stderr)
    finally:
        watch.stop()
        shutil.rmtree(home, ignore_errors=True)
    assert not watch.found
    assert watch.titles > 5 and "raylet.out" in watch.files  # it has looked
    for word in (SECRET, KEY):
        assert word not in "".join(said)
        for stat in storage_at(bucket).list():
            assert word.encode() not in storage_at(bucket).read(stat.name), stat.name
        for path in tmp_path.glob("report.*"):
            assert word not in path.read_text()


@pytest.mark.skipif(WEED is None, reason=NO_SERVER)
def test_refused_credentials_are_not_repeated(bucket, bert_folder, monkeypatch):
    wrong = "wrong-but-secret-all-the-same"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    words = ["embed", f"{bucket}/corpus", "--model", str(bert_folder), "--out", f"{bucket}/v"]
    done = CliRunner().invoke(main, [*words, "--debug", "--json-log"])
    assert done.exit_code == 2, done.output
    assert "check the credentials" in done.stderr.splitlines()[-1]
    assert not any(word in done.stdout + done.stderr for word in (wrong, KEY, SECRET))


@pytest.mark.parametrize("key", ["AKIA:sec/ret+planted", "AKIA:secretplanted"])
@pytest.mark.parametrize("place", ["corpus", "--out", "--model"])
def test_credentials_in_an_address_are_refused_and_not_repeated(key, place, bert_folder, tmp_path):
    corpus = write_corpus(tmp_path / "in", {"x.parquet": rows_of(sentences(5))})
    places = {"corpus": corpus, "--out": tmp_path / "out", "--model": bert_folder}
    places[place] = f"s3://{key}@bucket/x"
    words = ["embed", places["corpus"], "--out", places["--out"], "--model", places["--model"]]
    done = CliRunner().invoke(main, [*map(str, words), "--debug", "--json-log"])
    assert done.exit_code == 2, done.output
    assert "give s3://bucket/prefix, and keys through AWS_ACCESS_KEY_ID" in done.output
    assert "planted" not in done.output and "AKIA" not in done.output
    left = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"planted" in path.read_bytes()
    ]
    assert left == []
