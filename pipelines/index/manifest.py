"""Built shards -> the manifest of an index artifact."""

from pipelines.artifacts.kinds import (
    IndexInputs,
    IndexMetrics,
    IndexSettings,
    SearchEffort,
)
from pipelines.artifacts.manifest import IndexManifest, Manifest
from pipelines.index.build import BuiltIndex
from pipelines.index.identity import IndexIdentity

ROLES = ("index", "rows", "own")  # of the files of a shard


def build_manifest(identity: IndexIdentity, built: BuiltIndex) -> IndexManifest:
    """The manifest of what `Build.run` returned."""
    vectors, trained = identity.vectors.manifest, built.trained
    files = [
        file.to_data_file(record.rows, shard=number, role=role)
        for number, record in enumerate(built.shards)
        for role, file in zip(ROLES, record.files, strict=True)
    ]
    if trained is not None:
        files.append(trained.to_data_file(0, role="trained"))
    rows = sum(record.rows for record in built.shards)
    live = sum(record.live for record in built.shards)
    spec, settings = identity.spec, vectors.settings
    return Manifest(
        kind="index",
        generation=identity.generation,
        schema={n: t for n, t in vectors.schema.items() if n != "vector"},
        rows=live,
        quarantined=0,
        files=tuple(files),
        settings=IndexSettings(
            kind=spec.kind,
            m=spec.m,
            ef_construction=spec.ef_construction,
            seed=spec.seed,
            factory=identity.kind.factory,
            trained=None if trained is None else trained.path,
            model=settings.model,
            space=settings.space,
            recipe=settings.recipe,
            dim=settings.dim,
        ),
        inputs=IndexInputs(
            target=identity.target,
            vectors=identity.vectors.uri,
            files=tuple(file.sha256 for file in vectors.files),
            corpus=vectors.inputs.texts,
        ),
        metrics=IndexMetrics(
            search=SearchEffort(effort=built.recall.effort, name=identity.kind.effort_name),
            recall=built.recall.to_records(),
            distinct=sum(record.nodes for record in built.shards),
            stale=round((rows - live) / rows, 6),
            shard_records=tuple(built.shards),
        ),
    )
