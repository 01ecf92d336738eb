"""Number formats of our encoder and of its peers: speed and loss, in one table of one run.

    python tests/bench/formats.py --sts FOLDER [--corpus texts.parquet]

In:  a folder with stsb_test, sts12_test, sts13_test, sts14_test and sick_test (Parquet), and a file
     of other texts. Static int8 of peers is calibrated on stsb_train if that is there, and on
     docstrings otherwise.
Out: a table on the terminal, everything in bench-out/formats/table.json.

`make bench-peers STS=folder CORPUS=file` runs it after encode.py. Each contender runs in the way
(batch size, batches at once) that was its fastest in a short trial. Speeds are taken in rounds in
which all take turns, in an order drawn for each round; a ratio is the median of the ratios of the
rounds. Losses are points of Spearman x 100 against our float32; a peer that loses more than 0.3 on
a set or on average is marked. Trials, scores and rounds are kept one by one in bench-out/formats,
and measured again only if the model, the texts, our code or the version of a library changes.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import peers
import pyarrow.parquet as pq
import torch
from cells import Cells
from encode import sample, seconds
from format_contenders import Contender, make_contenders
from format_table import Row, conclusions, table
from peer_graphs import NUM_CALIBRATION, Graphs

from pipelines.artifacts.models import resolve_demo
from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from sbert_core.corpus.labelled import read_labelled, read_scored_pairs, read_text_pairs
from sbert_core.digest import digest
from sbert_core.evaluation.correlation import spearman
from sbert_core.evaluation.similarity import cosines

SETS = ("stsb_test", "sts12_test", "sts13_test", "sts14_test", "sick_test")
NUM_TRIAL_TEXTS = 400


def main() -> None:
    options = parsed_options()
    judged = judged_texts(options)
    contenders = chosen_contenders(options, judged)
    cells = Cells(options.out)
    speed_texts = sample(options)
    num_tokens = peers.count_tokens(Path(resolve_demo(options.model)), speed_texts)
    threads = torch.get_num_threads()
    print(
        f"{len(speed_texts)} distinct texts, {num_tokens:,} tokens; {threads} threads, "
        f"{len(contenders)} contenders, results in {options.out}",
        flush=True,
    )
    ways = {one.name: fastest_way(cells, one, speed_texts) for one in contenders}
    rounds = list(measure_rounds(cells, contenders, ways, speed_texts, options.rounds))
    quality = {
        one.name: load_quality(cells, one, ways[one.name], judged, options) for one in contenders
    }
    rows = [
        Row(
            contender=one,
            way=ways[one.name],
            rates=[num_tokens / taken[one.name] for taken in rounds],
            scores=quality[one.name]["scores"],
            least_cos=quality[one.name]["least_cos"],
        )
        for one in contenders
    ]
    print(table(rows))
    print("\n".join(conclusions(rows)))
    facts = {"num_texts": len(speed_texts), "num_tokens": num_tokens, "threads": threads}
    path = options.out / "table.json"
    path.write_text(json.dumps({**facts, "rows": [r.record() for r in rows]}, indent=2) + "\n")
    print(f"-> {path}")


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sts", type=Path, required=True, help="folder of the five STS sets")
    parser.add_argument("--num-pairs", type=int, help="of each set; all by default")
    parser.add_argument("--corpus", type=Path, help="Parquet file of other texts to compare on")
    parser.add_argument("--num-corpus", type=int, default=10_000)
    parser.add_argument("--texts", type=Path, help="for speed: Parquet; docstrings by default")
    parser.add_argument("--column", default="text")
    parser.add_argument("--num-texts", type=int, default=800, help="for speed")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--without", nargs="*", default=[], help="words in names of peers")
    parser.add_argument("--out", type=Path, default=Path("bench-out/formats"))
    options = parser.parse_args()
    missing = [name for name in SETS if not (options.sts / f"{name}.parquet").is_file()]
    if missing:
        parser.error(f"{options.sts} has no {', '.join(f'{name}.parquet' for name in missing)}")
    return options


def chosen_contenders(options: argparse.Namespace, judged: "JudgedTexts") -> list[Contender]:
    """Ours, and the peers that were not left out."""
    calibration = calibration_texts(options.sts, set(judged.texts))
    model = Path(resolve_demo(options.model))
    graphs = Graphs(model=model, folder=options.out, calibration=calibration).in_own_folder()
    return [
        one
        for one in make_contenders(graphs)
        if one.is_ours or not any(word in one.name for word in options.without)
    ]


# -- texts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedTexts:
    """What quality is measured on: each distinct text once, and which rows make the pairs."""

    texts: list[str]
    left: dict[str, list[int]]
    right: dict[str, list[int]]
    score: dict[str, list[float]]
    corpus: list[int]

    def identity(self) -> dict[str, str]:
        return {"texts": digest({"texts": self.texts, "score": self.score})}


def judged_texts(options: argparse.Namespace) -> JudgedTexts:
    """The pairs of the five sets and a seeded choice of the corpus."""
    row_of: dict[str, int] = {}

    def rows(texts: list[str]) -> list[int]:
        return [row_of.setdefault(text, len(row_of)) for text in texts]

    left, right, score = {}, {}, {}
    for name in SETS:
        (first, second), given = read_scored_pairs(str(options.sts / f"{name}.parquet"))
        cut = slice(options.num_pairs)
        left[name], right[name] = rows(first[cut]), rows(second[cut])
        score[name] = given[cut].tolist()
    corpus: list[int] = []
    if options.corpus is not None:
        corpus = rows(choose_texts(options.corpus, options.column, options.num_corpus))
    return JudgedTexts(texts=list(row_of), left=left, right=right, score=score, corpus=corpus)


def choose_texts(path: Path, column: str, num_texts: int) -> list[str]:
    """Distinct texts of a file, a seeded choice."""
    texts = pq.read_table(path, columns=[column])[column].to_pylist()
    distinct = [text for text in dict.fromkeys(texts) if text and text.strip()]
    chosen = np.random.default_rng(0).permutation(len(distinct))[:num_texts]
    return [distinct[row] for row in chosen]


def calibration_texts(sts: Path, judged: set[str]) -> tuple[str, ...]:
    """A few hundred sentences that quality is not measured on: STSb shares some with STS12-14."""
    path = sts / "stsb_train.parquet"
    if path.is_file():
        texts = read_text_pairs(read_labelled(str(path)), str(path))[0]
    else:
        texts = [row.text for row in collect_docstrings(library_folders(), limit=8000)]
    distinct = [text for text in dict.fromkeys(texts) if text not in judged]
    chosen = np.random.default_rng(1).permutation(len(distinct))[:NUM_CALIBRATION]
    return tuple(distinct[row] for row in chosen)


# -- measures --------------------------------------------------------------------------------------


def fastest_way(cells: Cells, contender: Contender, texts: list[str]) -> str:
    """The batch size, and batches at once, of the least time; ours chooses for itself."""
    if contender.is_ours:
        return ""
    trial = texts[:NUM_TRIAL_TEXTS]

    def measure() -> dict[str, float]:
        taken = dict.fromkeys(contender.runs, math.inf)
        for _ in range(2):
            for way, embed in contender.runs.items():
                taken[way] = min(taken[way], seconds(embed, trial))
        return taken

    identity = {**contender.identity, **speed_identity(trial)}
    taken = cells.load_or_measure(f"{contender.slug}-trial", identity, measure)
    way = min(taken, key=taken.__getitem__)
    print(f"{contender.name}: fastest with {way}", flush=True)
    return way


def encode_reference(cells: Cells, float32: Contender, judged: JudgedTexts) -> np.ndarray:
    """Our float32 vectors, which all others are compared with."""
    identity = {**float32.identity, **judged.identity()}
    return cells.load_or_encode(
        f"{float32.slug}-vectors", identity, lambda: float32.runs[""](judged.texts)
    )


def load_quality(
    cells: Cells, contender: Contender, way: str, judged: JudgedTexts, options: argparse.Namespace
) -> dict:
    """Spearman x 100 on each set, and the least cosine with our float32 vectors.

    Measured in a process of its own: libraries keep a kernel for every shape they meet, and the
    judged texts have so many that all contenders in one process took 20 GB. Peers' cells do not
    depend on our code, since our float32 vectors are not to change.
    """

    def measure() -> dict:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
            return process.submit(measure_quality, options, contender.name, way).result()

    identity = {**contender.identity, **judged.identity(), "way": way}
    result = cells.load_or_measure(f"{contender.slug}-quality", identity, measure)
    print(f"{contender.name}: quality measured", flush=True)
    return result


def measure_quality(options: argparse.Namespace, name: str, way: str) -> dict:
    """The same, unconditionally."""
    judged = judged_texts(options)
    contenders = chosen_contenders(options, judged)
    reference = encode_reference(Cells(options.out), contenders[0], judged)
    vectors = next(one for one in contenders if one.name == name).runs[way](judged.texts)
    cos = cosines(vectors, reference)
    sides = [*judged.left.values(), *judged.right.values()]
    least = {"sets": min(float(cos[rows].min()) for rows in sides)}
    if judged.corpus:
        least["corpus"] = float(cos[judged.corpus].min())
    scores = {
        name: spearman(
            cosines(vectors[judged.left[name]], vectors[judged.right[name]]),
            np.array(judged.score[name]),
        )
        for name in SETS
    }
    return {"scores": scores, "least_cos": least}


def measure_rounds(
    cells: Cells,
    contenders: list[Contender],
    ways: dict[str, str],
    texts: list[str],
    num_rounds: int,
) -> Iterator[dict[str, float]]:
    """Seconds of every contender in every round; a finished round is kept."""
    identity = {
        "contenders": {one.name: {**one.identity, "way": ways[one.name]} for one in contenders},
        **speed_identity(texts),
    }
    embeds = {}

    def measure(number: int) -> dict[str, float]:
        if not embeds:
            embeds.update({one.name: one.runs[ways[one.name]] for one in contenders})
            for embed in embeds.values():
                embed(texts)  # the first call pays for buffers and compiled kernels
        order = np.random.default_rng(number).permutation(list(embeds)).tolist()
        taken = {name: seconds(embeds[name], texts) for name in order}
        assert torch.get_num_threads() == identity["threads"], "a contender changed the threads"
        return taken

    for number in range(1, num_rounds + 1):
        yield cells.load_or_measure(
            f"round-{number:02d}", {**identity, "round": number}, lambda n=number: measure(n)
        )
        print(f"round {number} of {num_rounds} done", flush=True)


def speed_identity(texts: list[str]) -> dict[str, object]:
    """What a time depends on, beside the contenders."""
    return {
        "texts": digest({"texts": texts}),
        "threads": torch.get_num_threads(),
        "processor": cpu_name(),
    }


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    main()
