"""A GPU of the cluster, measured with the demo model on this machine's docstrings."""

import logging
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from pipelines.artifacts.models import demo_model
from pipelines.runtime.tasks import own_error
from sbert_core.corpus.docstrings import docstrings, library_folders
from workers.doctor.gpu import gpu_report

log = logging.getLogger(__name__)

NUM_TEXTS = 4000
GPU_SECONDS = 300.0


def measured_gpu() -> dict[str, Any]:
    if not ray.cluster_resources().get("GPU"):
        raise ValueError("no GPU to measure: Ray offers none; run it where nvidia-smi lists one")
    texts = [own.text for own in docstrings(library_folders(), NUM_TEXTS)]
    log.info("measuring a GPU with %d texts, at most %.0f s", len(texts), GPU_SECONDS)
    task: Any = ray.remote(num_gpus=1, num_cpus=0, max_retries=0)(gpu_report)
    reference = task.remote(files_of(demo_model()), texts)
    try:
        with own_error():
            return ray.get(reference, timeout=GPU_SECONDS)
    except GetTimeoutError:
        ray.cancel(reference, force=True)
        raise ValueError(
            f"the GPU gave no answer within {GPU_SECONDS:.0f} s; is it in use, or broken?"
        ) from None


def files_of(folder: Path) -> dict[str, bytes]:
    """The model itself travels: nodes need not have it, or not in the same place."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".py"
    }
