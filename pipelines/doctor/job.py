"""A cluster, or this machine -> what is well, what is not, and what to do about it.

In:  an address, or none for an embedded Ray; places that all nodes should share.
Out: DoctorReport; for a GPU also measurements in a file to send in. Nothing is left behind.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pipelines.doctor.collect import examined
from pipelines.doctor.spec import DoctorSpec
from pipelines.doctor.verdicts import Check, Verdict, judged
from pipelines.runtime.session import ray_session


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """gpu: what was measured on one; gpu_file: the same on disk, to send in."""

    checks: tuple[Check, ...]
    gpu: dict[str, Any] | None = None
    gpu_file: str | None = None

    @property
    def num_failed(self) -> int:
        return sum(check.verdict is Verdict.FAIL for check in self.checks)

    @property
    def num_warned(self) -> int:
        return sum(check.verdict is Verdict.WARN for check in self.checks)


def run(spec: DoctorSpec) -> DoctorReport:
    with _joined(spec.address):
        # Loads torch, which nothing else here needs.
        gpu = import_module("pipelines.doctor.gpu").measured_gpu() if spec.gpu else None
        checks = tuple(judged(examined(spec.storage)))
    path = None if gpu is None else str(written(Path.cwd(), gpu, checks))
    return DoctorReport(checks=checks, gpu=gpu, gpu_file=path)


def written(folder: Path, gpu: dict[str, Any], checks: Sequence[Check]) -> Path:
    """A new file with what was measured, and on what."""
    path = folder / f"sbert-gpu-{time.strftime('%Y%m%d-%H%M%S')}.json"
    facts = {"gpu": gpu, "checks": [asdict(check) for check in checks]}
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return path


@contextlib.contextmanager
def _joined(address: str | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sbert-"))
        try:
            stack.enter_context(ray_session(Path(folder), address=address))
        except RuntimeError as error:
            if "ersion mismatch" not in str(error):
                raise
            raise ValueError(
                f"{address} runs other versions: {' '.join(str(error).split())}; install the "
                "cluster's Python and Ray here"
            ) from error
        yield
