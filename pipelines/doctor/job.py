"""A cluster, or this machine -> checks with verdicts, and remedies for those that fail.

In:  an address, or none for an embedded Ray; places that all nodes should share.
Out: DoctorReport; for a GPU also measurements in a file to send in. Nothing is left behind.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.doctor.collect import collect_findings
from pipelines.doctor.spec import DoctorSpec
from pipelines.doctor.verdicts import Check, Verdict, check_findings
from pipelines.runtime.session import ray_session
from sbert_core.json_record import encode

if TYPE_CHECKING:
    from workers.doctor.gpu import GpuReport  # loads torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """All checks. gpu: what was measured on one. gpu_file: the same on disk, to send in."""

    checks: tuple[Check, ...]
    gpu: "GpuReport | None" = None
    gpu_file: str | None = None

    @property
    def num_failed(self) -> int:
        """Checks that must be mended."""
        return sum(check.verdict is Verdict.FAIL for check in self.checks)

    @property
    def num_warned(self) -> int:
        """Checks that are worth a look."""
        return sum(check.verdict is Verdict.WARN for check in self.checks)


def run(spec: DoctorSpec) -> DoctorReport:
    """Check the cluster at --address, or an embedded Ray; with --gpu measure a GPU of it."""
    with _connect(spec.address):
        gpu = _measure_gpu() if spec.gpu else None
        checks = tuple(check_findings(collect_findings(spec.storage)))
    path = None if gpu is None else str(write_gpu_file(Path.cwd(), gpu, checks))
    return DoctorReport(checks=checks, gpu=gpu, gpu_file=path)


def _measure_gpu() -> "GpuReport":
    # Loads torch, which nothing else here needs.
    report: GpuReport = import_module("pipelines.doctor.gpu").measure_cluster_gpu()
    return report


def write_gpu_file(folder: Path, gpu: "GpuReport", checks: Sequence[Check]) -> Path:
    """Write measurements and checks to a new file in `folder`; its path."""
    path = folder / f"sbert-gpu-{time.strftime('%Y%m%d-%H%M%S')}.json"
    facts = {"gpu": encode(gpu), "checks": [encode(check) for check in checks]}
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return path


@contextlib.contextmanager
def _connect(address: str | None) -> Iterator[None]:
    """A Ray session; ValueError if the cluster runs other versions of Python or Ray."""
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
