"""Vectors -> a file in PostgreSQL's COPY text format, and SQL that loads it with pgvector."""

from pathlib import Path

from pipelines.artifacts.reader import VectorsArtifact
from pipelines.export.rows import exported_columns, float_batches
from sbert_core.vectors.block import vector_matrix

POSTGRES_TYPES = {
    "string": "text",
    "large_string": "text",
    "bool": "boolean",
    "double": "double precision",
    "float": "real",
    "int8": "smallint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "date32[day]": "date",
}


def write_pgvector(artifact: VectorsArtifact, out: Path, name: str) -> None:
    """Write load.sql and rows.copy. name: of the table.

    ValueError if a column has a type PostgreSQL lacks, or a name that psql cannot read.
    """
    columns = exported_columns(artifact)
    unknown = [f"{c} ({kind})" for c, kind in columns.items() if kind not in POSTGRES_TYPES]
    if unknown:
        raise ValueError(f"no PostgreSQL type for {', '.join(unknown)}; carry other columns")
    for column in columns:
        if set(column) & set("\n\r\0"):
            raise ValueError(f"column {column!r} has a name psql cannot read; carry other columns")
    out.mkdir(parents=True, exist_ok=True)
    sql = _load_script(name, columns, artifact.manifest.settings.dim)
    (out / "load.sql").write_text(sql, encoding="utf-8")
    with (out / "rows.copy").open("w", encoding="utf-8", newline="\n") as file:
        for batch in float_batches(artifact):
            vectors = vector_matrix(batch.column("vector"))
            for row, vector in zip(batch.select(list(columns)).to_pylist(), vectors, strict=True):
                numbers = ",".join(map(repr, vector.tolist()))
                file.write("\t".join([*map(copy_text, row.values()), f"[{numbers}]"]) + "\n")


def _load_script(name: str, columns: dict[str, str], dim: int) -> str:
    fields = [f"{quote(c)} {POSTGRES_TYPES[kind]}" for c, kind in columns.items()]
    fields[0] += " PRIMARY KEY"
    lines = ",\n  ".join([*fields, f'"vector" vector({dim})'])
    names = ", ".join(map(quote, [*columns, "vector"]))
    return (
        f'CREATE EXTENSION IF NOT EXISTS vector;\nCREATE TABLE "{name}" (\n  {lines}\n);\n'
        f"\\copy \"{name}\" ({names}) FROM 'rows.copy'\n"
    )


def quote(name: str) -> str:
    """An SQL identifier."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def copy_text(value: object) -> str:
    """A value in PostgreSQL's COPY text format."""
    if value is None:
        return r"\N"
    if isinstance(value, bool):
        return "t" if value else "f"
    text = str(value).replace("\0", "")  # PostgreSQL's text holds no NUL
    for plain, escaped in (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r")):
        text = text.replace(plain, escaped)
    return text
