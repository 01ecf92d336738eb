"""What deploy/ holds, as its tests read it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
KUBERAY = DEPLOY / "kuberay"
SLURM_SCRIPT = DEPLOY / "slurm" / "sbert.sbatch"
SCHEDULE_SCRIPT = KUBERAY / "schedule.sh"
README = (DEPLOY / "README.md").read_text(encoding="utf-8")


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


def manifest(name: str, kind: str) -> dict[str, Any]:
    """The one manifest of a kind in a file of deploy/kuberay."""
    [found] = [item for item in documents(KUBERAY / name) if item.get("kind") == kind]
    return found


def ray_cluster() -> dict[str, Any]:
    return manifest("raycluster.yaml", "RayCluster")["spec"]


def ray_job() -> dict[str, Any]:
    return manifest("rayjob.yaml", "RayJob")["spec"]


def pod_templates() -> dict[str, dict[str, Any]]:
    """Every pod that comes of these files, by a name to complain with."""
    cron = manifest("cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    job = ray_job()
    found = {"cron": cron, "submitter": job["submitterPodTemplate"]}
    for name, spec in (("cluster", ray_cluster()), ("job", job["rayClusterSpec"])):
        found[f"{name} head"] = spec["headGroupSpec"]["template"]
        for group in spec["workerGroupSpecs"]:
            found[f"{name} {group['groupName']}"] = group["template"]
    return found


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, template in pod_templates().items():
        for container in template["spec"]["containers"]:
            yield name, container


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (WORD, rest), comments gone and lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    split = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in split]


def texts() -> dict[str, str]:
    """Every file below deploy/, by its place in it."""
    return {
        str(path.relative_to(DEPLOY)): path.read_text(encoding="utf-8")
        for path in sorted(DEPLOY.rglob("*"))
        if path.is_file()
    }
