"""A GPU of the cluster, measured with the demo model on docstrings of this machine."""

import logging
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError

from pipelines.artifacts.models import demo_model_folder
from pipelines.runtime.tasks import unwrap_errors
from sbert_core.corpus.docstrings import collect_docstrings, library_folders
from workers.doctor.gpu import GpuReport, measure_gpu

log = logging.getLogger(__name__)

NUM_TEXTS = 4000
GPU_SECONDS = 300.0


def measure_cluster_gpu() -> GpuReport:
    """Measure one GPU as a Ray task; ValueError if the cluster has none or it takes too long."""
    if not ray.cluster_resources().get("GPU"):
        raise ValueError("no GPU to measure: Ray offers none; run it where nvidia-smi lists one")
    texts = [own.text for own in collect_docstrings(library_folders(), NUM_TEXTS)]
    log.info("measuring a GPU with %d texts, at most %.0f s", len(texts), GPU_SECONDS)
    task = ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(measure_gpu)
    reference = task.remote(read_model_files(demo_model_folder()), texts)
    try:
        with unwrap_errors():
            report: GpuReport = ray.get(reference, timeout=GPU_SECONDS)
            return report
    except GetTimeoutError:
        ray.cancel(reference, force=True)
        raise ValueError(
            f"the GPU gave no answer within {GPU_SECONDS:.0f} s; is it in use, or broken?"
        ) from None


def read_model_files(folder: Path) -> dict[str, bytes]:
    """The files of a model by relative name, to send along: nodes need not have the model."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py"
    }
