"""Specs of every stage: with defaults, and with every option set.

The digests are those of the version before options were declared as fields: artifacts carry digests
of their options, so that an equal spec must never get another one.
"""

from pathlib import Path

from pipelines.apply.spec import ApplySpec
from pipelines.cluster.spec import ClusterSpec
from pipelines.dedup.spec import DedupSpec
from pipelines.demo.spec import DemoSpec
from pipelines.doctor.spec import DoctorSpec
from pipelines.embed.spec import EmbedSpec
from pipelines.evaluate.spec import EvaluateSpec
from pipelines.export.spec import ExportSpec
from pipelines.index.spec import IndexSpec
from pipelines.mine.spec import MineSpec
from pipelines.pairs.spec import PairsSpec
from pipelines.path.spec import PathSpec
from pipelines.prepare.spec import PrepareSpec
from pipelines.purge.spec import PurgeSpec
from pipelines.report.spec import ReportSpec
from pipelines.run.spec import RunSpec
from pipelines.search.spec import SearchSpec
from pipelines.submit.spec import SubmitSpec
from pipelines.threshold.spec import ThresholdSpec
from pipelines.train.spec import TrainSpec

SPECS_AND_DIGESTS = [
    (ApplySpec(clusters="k", corpus="c", out="o"), "19e7ca6d78664f76"),
    (
        ApplySpec(clusters="k", corpus="c", out="o", threshold=0.9, address="a:1"),
        "8ef730528f07e8ae",
    ),
    (ClusterSpec(pairs="p", out="o"), "995a02de04c3a6f3"),
    (
        ClusterSpec(
            pairs="p",
            out="o",
            method="components",
            thresholds=(0.9, 0.95),
            keep="longest",
            protect="p",
            metadata="m",
            vectors="v",
            min_rerank=0.5,
            max_cluster_share=0.5,
            topics=3,
            compare_fresh=True,
            seed=7,
        ),
        "d7732db4aafa0e73",
    ),
    (DedupSpec(file="f", out=Path("o")), "168d800297746546"),
    (
        DedupSpec(
            file="f",
            out=Path("o"),
            text_column="t",
            id_column="i",
            threshold="0.9",
            keep="longest",
            model="m",
            address="a:1",
        ),
        "e8fa9ec827441f3d",
    ),
    (DemoSpec(out=Path("demo-out")), "ab23fbc8814ee88f"),
    (DemoSpec(out=Path("o"), docstrings=9, small=True, address="a:1"), "8739b7fb886ec001"),
    (DoctorSpec(), "31cd3babbf58283d"),
    (DoctorSpec(storage=("s",), gpu=True, address="a:1"), "b485ce2309555c6b"),
    (EmbedSpec(corpus="c", model="m", out="o"), "ec004d5d3c451a01"),
    (
        EmbedSpec(
            corpus="c",
            model="m",
            out="o",
            text_column="t",
            text="{a} {b}",
            id_column="i",
            carry=("x", "y=z"),
            where="a > 1",
            limit=5,
            dtype="int8",
            max_length=9,
            prompt="p",
            truncate_dim=8,
            long="chunks",
            distinct="unit",
            actors=2,
            gpus_per_actor=0.5,
            cpus_per_actor=2,
            unit_rows=1024,
            skip_corrupt=True,
            plan=True,
            address="a:1",
        ),
        "0007a9fa7cf76db1",
    ),
    (
        EmbedSpec(corpus="c", model="m", out="o", id="content", dtype="float16", long="pool"),
        "88f75ca5c97b99db",
    ),
    (EvaluateSpec(models=("m",), sts=("s",)), "319c74be4fcd3c55"),
    (
        EvaluateSpec(
            models=("m", "n"),
            sts=("s",),
            sts_aggregate="wmean",
            nli=("n",),
            triplets=("t",),
            pairs=("p",),
            transfer="t",
            retrieval="r",
            clusters=("c",),
            facets=("f",),
            baselines=("tfidf", "glove=g"),
            out=Path("o"),
            address="a:1",
        ),
        "fd3593585ab8a8ed",
    ),
    (ExportSpec(vectors="v", to="lance", out="o"), "da62d39418432540"),
    (ExportSpec(vectors="v", to="pgvector", out="o", name="n"), "31cecd0fd13450e5"),
    (IndexSpec(vectors="v", out="o"), "f06a1443eb0abf46"),
    (
        IndexSpec(
            vectors="v",
            out="o",
            kind="faiss:IVF4,Flat",
            shards=2,
            m=8,
            ef_construction=9,
            train_sample=10,
            recall_sample=11,
            recall_target=0.9,
            seed=7,
            address="a:1",
        ),
        "dc3dd1e3e0641a57",
    ),
    (MineSpec(shards="s", model="m", out="o"), "9eb797a7faa61505"),
    (
        MineSpec(
            shards="s", model="m", out="o", negatives=2, margin=0.1, ceiling=0.8, address="a:1"
        ),
        "adf3b0c3e76bd3f7",
    ),
    (PairsSpec(vectors="v", out="o"), "a520b7980c08423d"),
    (
        PairsSpec(
            vectors="v",
            out="o",
            threshold=0.8,
            against="a",
            method="ivf",
            recall=0.9,
            max_edges=5,
            rerank="r",
            band=(0.7, 0.8),
            seed=7,
            address="a:1",
        ),
        "1f8c0e2191932130",
    ),
    (PairsSpec(vectors="v", out="o", method="exact", top_k=3), "294a5be8cd2d45ad"),
    (PathSpec(artifact="a"), "f002367c8f06ac1c"),
    (PathSpec(artifact="a", files=True, materialize=True, address="a:1"), "084b1a938ffc64f5"),
    (PrepareSpec(files=("f",), out="o", format="ranking"), "1deeda499c50e715"),
    (
        PrepareSpec(
            files=("f", "g"),
            out="o",
            format="pairs",
            columns=("a", "b"),
            exclude=("e",),
            labels=("x", "y"),
            skip_label=("z",),
            score_range=(0.0, 5.0),
            dev_fraction=0.1,
            shards=3,
            tokenizer="t",
            seed=7,
            address="a:1",
        ),
        "0e4a2b1ee6d90432",
    ),
    (PurgeSpec(artifacts=("a",), id=("i", "j")), "a5606ec303184558"),
    (PurgeSpec(artifacts=("a", "b"), id=("i",), ids="f", address="a:1"), "7a1a1dd8545a1668"),
    (ReportSpec(sources=("s",), out="report.html"), "68ffaea30e468e4e"),
    (
        ReportSpec(sources=("s", "t"), out="o", title="t", sample=5, clusters=6, seed=7),
        "53a5cf70edbcb4dc",
    ),
    (RunSpec(job=Path("j")), "6ecc24056294abb3"),
    (
        RunSpec(job=Path("j"), settings=("a.b=c",), plan=True, start="embed", address="a:1"),
        "134ba8aa3b3499e1",
    ),
    (SearchSpec(index="i", text="t"), "af789f34ad2449a4"),
    (
        SearchSpec(
            index="i",
            queries="q",
            text_column="t",
            id_column="i",
            k=3,
            model="m",
            rerank="r",
            filter="f",
            out="o",
            address="a:1",
        ),
        "7bb25a0e3f86c228",
    ),
    (SubmitSpec(job=Path("j"), address="http://h:1"), "5279a51c9f160184"),
    (
        SubmitSpec(
            job=Path("j"),
            address="http://h:1",
            settings=("a.b=c",),
            words=("--plan",),
            env=("A=b",),
            job_id="x",
            wait=False,
        ),
        "169b09393bf952e7",
    ),
    (ThresholdSpec(source="s"), "2c0d80dc9b80d221"),
    (ThresholdSpec(source="s", labelled="l", samples=5, seed=7), "da4fd102d0d2ff9e"),
    (TrainSpec(shards="s", base="b", out=Path("o"), objective="softmax"), "0bd5bdc07ec39818"),
    (
        TrainSpec(
            shards="s",
            base="b",
            out=Path("o"),
            objective="triplet",
            concat="u,v",
            margin=2.0,
            distance="manhattan",
            matryoshka=(64, 32),
            pooling="max",
            dense=16,
            max_length=9,
            workers=2,
            gpus_per_worker=1.0,
            cpus_per_worker=3,
            epochs=2,
            batch_size=4,
            accumulate=2,
            lr=0.001,
            warmup=0.2,
            weight_decay=0.01,
            precision="bf16",
            seed=7,
            seeds=2,
            eval="e",
            checkpoint_steps=10,
            address="a:1",
        ),
        "5d2a594161932e9a",
    ),
    (TrainSpec(shards="s", base="b", out=Path("o"), cross_encoder=True), "38aab2cec85d3d74"),
    (EmbedSpec(corpus="c", model="m", out="o", precision="int8"), "a96b5958a2b910cb"),
    (EvaluateSpec(models=("m",), sts=("s",), precision="bfloat16"), "8cabbcf691201614"),
    (MineSpec(shards="s", model="m", out="o", precision="float16"), "c379b9e1ca86cd8e"),
    (SearchSpec(index="i", text="t", precision="auto"), "7b7ecc0ea1065c79"),
]
