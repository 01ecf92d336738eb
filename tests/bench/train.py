"""Fine-tuning throughput: `sbert train`'s loop against sentence-transformers' trainer.

Run by `make bench-train`. The same pairs, model, batch size, optimiser and number of threads, one
process each, taking turns; then the loop on one rank of two threads against two ranks of one, with
the batch size of a worker (as `--workers 2` has it) and with that of the whole step kept.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.artifacts.models import resolve_model

BATCH = 16
WARM_STEPS = 3


def rows_of(path: Path, number: int) -> tuple[list[list[str]], np.ndarray]:
    table = pq.read_table(path)
    chosen = np.random.default_rng(0).permutation(len(table))[:number]
    table = table.take(pa.array(chosen))
    texts = [table[name].to_pylist() for name in ("sentence1", "sentence2")]
    return texts, (table["score"].to_numpy() / 5).astype(np.float32)


def ours(
    model: str,
    path: Path,
    number: int,
    threads: int,
    rank: int = 0,
    size: int = 1,
    batch: int = BATCH,
) -> float:
    """Pairs per second of all ranks, after the first steps."""
    import torch
    import torch.distributed as dist

    from sbert_core.encoder.encoder import Encoder
    from sbert_core.training.base_model import load_base_model
    from sbert_core.training.bi_encoder import BiEncoderLearner
    from sbert_core.training.distributed import ProcessGroup
    from sbert_core.training.loop import OptimConfig, TrainLoop
    from sbert_core.training.losses import make_objective
    from sbert_core.training.sampler import EpochSampler

    torch.set_num_threads(threads)
    if size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=size)
    world = ProcessGroup(rank, size)
    encoder = Encoder(load_base_model(Path(model), None, None, 0), threads=threads)
    learner = BiEncoderLearner(encoder, make_objective("cosine"), None, world)
    texts, scores = rows_of(path, number)
    shards = size
    order = EpochSampler(
        shard_rows=tuple(len(scores[s::shards]) for s in range(shards)),
        world_size=size,
        batch_size=batch,
        seed=0,
    )

    def read(shard: int):
        return learner.examples([role[shard::shards] for role in texts], scores[shard::shards])

    loop = TrainLoop(learner, order, OptimConfig(), world, read)
    start, done = 0.0, 0
    for step, report in enumerate(loop.run()):
        if step == WARM_STEPS:
            start = time.perf_counter()
        elif step > WARM_STEPS:
            done += report.num_rows
    return done / (time.perf_counter() - start)


def theirs(model: str, path: Path, number: int, threads: int) -> float:
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import CosineSimilarityLoss
    from transformers import TrainerCallback

    torch.set_num_threads(threads)
    texts, scores = rows_of(path, number)
    data = Dataset.from_dict({"a": texts[0], "b": texts[1], "score": scores.tolist()})
    encoder = SentenceTransformer(model, device="cpu")
    clock = {"start": 0.0, "steps": 0}

    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == WARM_STEPS:
                clock["start"] = time.perf_counter()
            clock["steps"] = state.global_step

    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=2e-5,
            warmup_ratio=0.1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        SentenceTransformerTrainer(
            model=encoder,
            args=arguments,
            train_dataset=data,
            loss=CosineSimilarityLoss(encoder),
            callbacks=[Clock()],
        ).train()
    seconds = time.perf_counter() - clock["start"]
    return (clock["steps"] - WARM_STEPS) * BATCH / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, required=True, help="Parquet of scored pairs")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="run one contender in this process; used by the others")
    parser.add_argument("--out", type=Path, default=Path("bench-out/train.json"))
    options = parser.parse_args()
    model = resolve_model(options.model)
    if options.only:
        kind, *numbers = options.only.split(",")
        run = theirs if kind == "theirs" else ours
        rate = run(model, options.pairs, options.rows, *map(int, numbers))
        print(json.dumps(rate), flush=True)
        return
    contenders = {
        "sbert train, 1 worker of 2 threads": ["ours,2"],
        "sbert train, 2 workers of 1 thread": ["ours,1,0,2", "ours,1,1,2"],
        "the same, half a batch each": ["ours,1,0,2,8", "ours,1,1,2,8"],
        "sentence-transformers' trainer, 2 threads": ["theirs,2"],
    }
    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, processes in contenders.items():
            rates.setdefault(name, []).append(started(processes, options))
            print(f"{name}: {rates[name][-1]:.1f} pairs/s", flush=True)
    base = statistics.median(rates["sentence-transformers' trainer, 2 threads"])
    print("\n| | pairs/s, best | median | times the trainer |\n|---|---:|---:|---:|")
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"| {name} | {max(found):.1f} | {middle:.1f} | {middle / base:.2f} |")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rates, indent=2) + "\n")


def started(processes: list[str], options: argparse.Namespace) -> float:
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
    words = [sys.executable, __file__, "--pairs", str(options.pairs), "--model", options.model]
    words += ["--rows", str(options.rows), "--only"]
    running = [
        subprocess.Popen([*words, only], env=env, stdout=subprocess.PIPE, text=True)
        for only in processes
    ]
    said = [process.communicate()[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return float(said[0].strip().splitlines()[-1])


if __name__ == "__main__":
    main()
