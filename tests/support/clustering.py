"""Steps from vectors to clusters, for tests of what follows."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.artifacts.reader import Artifact
from pipelines.cluster import job as cluster_job
from pipelines.cluster.spec import ClusterSpec
from pipelines.pairs import job as pairs_job
from pipelines.pairs.spec import PairsSpec


def paired(vectors, out, address, threshold=0.85, **options):
    pairs_job.run(
        PairsSpec(
            vectors=str(vectors), out=str(out), threshold=threshold, address=address, **options
        )
    )
    return out


def clustered(pairs, out, **options):
    return cluster_job.run(ClusterSpec(pairs=str(pairs), out=str(out), **options))


def table_of(out, threshold=None):
    table = pq.read_table(Artifact.open(out).folder)
    if threshold is not None:
        table = table.filter(pc.equal(table["threshold"], pa.scalar(threshold, pa.float32())))
    return {row["id"]: row for row in table.to_pylist()}
