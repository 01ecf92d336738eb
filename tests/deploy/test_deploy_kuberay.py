"""The manifests of deploy/kuberay agree with each other, and hold what they promise."""

import re
import shlex

import pytest
from support.deploy_files import (
    DEPLOY,
    KUBERAY,
    README,
    SLURM_SCRIPT,
    containers,
    documents,
    manifest,
    pod_templates,
    ray_cluster,
    ray_job,
)

from pipelines.run.jobfile import JobFile

pytestmark = pytest.mark.timeout(60)

RAY_FILES = (("rayjob.yaml", "RayJob"), ("raycluster.yaml", "RayCluster"))
STOP_SECONDS = 25  # what a run may take to save what it has


def test_kustomization_lists_what_is_there_and_makes_what_is_mounted():
    [found] = documents(KUBERAY / "kustomization.yaml")
    assert all((KUBERAY / name).is_file() for name in found["resources"])
    made = {item["name"]: item["files"] for item in found["configMapGenerator"]}
    assert all((KUBERAY / name).is_file() for files in made.values() for name in files)
    assert found["generatorOptions"]["disableNameSuffixHash"] is True
    mounted = {
        volume["configMap"]["name"]
        for template in pod_templates().values()
        for volume in template["spec"]["volumes"]
        if "configMap" in volume
    }
    assert mounted == set(made)
    assert found["namespace"] == manifest("namespace.yaml", "Namespace")["metadata"]["name"]


def test_schedule_has_the_rights_it_needs_over_its_rayjob_alone():
    account = manifest("cronjob.yaml", "ServiceAccount")["metadata"]["name"]
    role = manifest("cronjob.yaml", "Role")
    binding = manifest("cronjob.yaml", "RoleBinding")
    assert pod_templates()["cron"]["spec"]["serviceAccountName"] == account
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    name = manifest("rayjob.yaml", "RayJob")["metadata"]["name"]
    create, own = role["rules"]
    assert create["verbs"] == ["create"]
    assert own["resourceNames"] == [name]
    script = (KUBERAY / "schedule.sh").read_text()
    assert f"\nname={name}\n" in script
    verbs = set(re.findall(r"kubectl (\w+)", script))
    assert verbs == {"create", "get", "delete"}
    assert verbs <= {*create["verbs"], *own["verbs"]}


def test_schedule_runs_one_at_a_time_and_outlives_its_rayjob():
    cron = manifest("cronjob.yaml", "CronJob")["spec"]
    job = ray_job()
    assert cron["concurrencyPolicy"] == "Forbid"
    work = cron["jobTemplate"]["spec"]
    assert work["activeDeadlineSeconds"] >= job["activeDeadlineSeconds"] * (1 + job["backoffLimit"])
    [container] = work["template"]["spec"]["containers"]
    rules = {rule["action"]: rule for rule in work["podFailurePolicy"]["rules"]}
    assert rules["FailJob"]["onExitCodes"]["containerName"] == container["name"]
    assert rules["FailJob"]["onExitCodes"]["values"] == [1]
    [mount] = [item for item in container["volumeMounts"] if item["name"] == "schedule"]
    assert container["command"][-1] == f"{mount['mountPath']}/schedule.sh"
    assert f"{mount['mountPath']}/rayjob.yaml" in (KUBERAY / "schedule.sh").read_text()


def test_rayjob_brings_the_cluster_of_raycluster():
    assert ray_job()["rayClusterSpec"] == ray_cluster()
    names = [manifest(*file)["metadata"]["name"] for file in RAY_FILES]
    assert len(set(names)) == 2  # KubeRay makes a service NAME-head-svc for each


def test_rayjob_is_bounded_and_cleans_up():
    job = ray_job()
    assert job["submissionMode"] == "K8sJobMode"
    assert job["shutdownAfterJobFinishes"] is True  # else the ttl is refused
    assert 0 < job["ttlSecondsAfterFinished"] < job["activeDeadlineSeconds"]
    assert job["preRunningDeadlineSeconds"] < job["activeDeadlineSeconds"]
    assert job["backoffLimit"] > 0
    words = shlex.split(job["entrypoint"])
    head = pod_templates()["job head"]["spec"]["containers"][0]
    [mount] = [item for item in head["volumeMounts"] if item["name"] == "job"]
    assert words[:3] == ["sbert", "run", f"{mount['mountPath']}/job.yaml"]


def test_clusters_ask_for_the_token_of_one_secret():
    auth = ray_cluster()["authOptions"]
    assert auth["mode"] == "token"
    command = f"create secret generic {auth['secretName']} --from-literal=auth_token="
    assert command in README
    assert command in (KUBERAY / "raycluster.yaml").read_text()
    storage = {
        source["secretRef"]["name"]
        for _, container in containers()
        for source in container.get("envFrom", [])
    }
    assert len(storage) == 1
    assert f"create secret generic {storage.pop()} " in README


def test_head_is_kept_off_spot_nodes_and_workers_scale_from_none():
    spec = ray_cluster()
    head = spec["headGroupSpec"]
    rules = head["template"]["spec"]["affinity"]["nodeAffinity"]
    [term] = rules["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    avoided = {rule["key"] for rule in term["matchExpressions"] if rule["operator"] == "NotIn"}
    assert "tolerations" not in head["template"]["spec"]
    assert head["serviceType"] == "ClusterIP"
    assert head["enableIngress"] is False
    assert spec["enableInTreeAutoscaling"] is True
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
        tolerated = {item["key"] for item in group["template"]["spec"]["tolerations"]}
        assert len(tolerated & avoided) == 3, group["groupName"]


def test_ports_agree():
    policy = documents(KUBERAY / "networkpolicy.yaml")[1]
    opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule.get("ports", [])}
    head = pod_templates()["cluster head"]
    ports = {port["name"]: port["containerPort"] for port in head["spec"]["containers"][0]["ports"]}
    assert opened == {ports["dashboard"], ports["metrics"]}
    for name, template in pod_templates().items():
        if name not in ("cron", "submitter"):
            notes = template["metadata"]["annotations"]
            assert notes["prometheus.io/port"] == str(ports["metrics"]), name
    static = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    assert f"--metrics-export-port={ports['metrics']}" in static
    assert f"--metrics-export-port={ports['metrics']}" in README
    assert f"--port={ports['gcs-server']}" in README
    service = f"{manifest('raycluster.yaml', 'RayCluster')['metadata']['name']}-head-svc"
    assert f"port-forward service/{service} {ports['dashboard']}" in README


def test_network_policy_lets_the_submitter_in_by_its_label():
    policy = documents(KUBERAY / "networkpolicy.yaml")[1]
    labels = ray_job()["submitterPodTemplate"]["metadata"]["labels"]
    allowed = [
        source["podSelector"]["matchLabels"]
        for rule in policy["spec"]["ingress"]
        for source in rule["from"]
        if "podSelector" in source and "namespaceSelector" not in source
    ]
    assert labels in allowed


@pytest.mark.parametrize("name", sorted(pod_templates()))
def test_pods_are_locked_down_and_bounded(name):
    pod = pod_templates()[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] >= 1000
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        lock = container["securityContext"]
        assert lock["allowPrivilegeEscalation"] is False
        assert lock["readOnlyRootFilesystem"] is True
        assert lock["capabilities"]["drop"] == ["ALL"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_ray_pods_have_time_to_save_before_they_are_killed():
    for name, template in pod_templates().items():
        if name in ("cron", "submitter"):
            continue
        [container] = template["spec"]["containers"]
        hook = " ".join(container["lifecycle"]["preStop"]["exec"]["command"])
        waits = int(re.search(r"\{1\.\.(\d+)\}", hook)[1])
        assert STOP_SECONDS < waits < template["spec"]["terminationGracePeriodSeconds"], name
        assert f"pkill -TERM -x {'sbert' if name.endswith('head') else 'ray'};" in hook, name
    [head] = pod_templates()["cluster head"]["spec"]["containers"]
    stop = {item["name"]: item["value"] for item in head["env"]}["RAY_JOB_STOP_WAIT_TIME_S"]
    assert int(stop) > STOP_SECONDS
    assert int(re.search(r"--signal=B:TERM@(\d+)", SLURM_SCRIPT.read_text())[1]) > STOP_SECONDS


def test_job_file_is_read_by_the_job_runner_and_fits_the_cluster():
    job = JobFile.read(KUBERAY / "job.yaml")
    assert job.out.startswith("s3://")
    [gpu] = [g for g in ray_cluster()["workerGroupSpecs"] if g["groupName"] == "gpu"]
    limits = gpu["template"]["spec"]["containers"][0]["resources"]["limits"]
    there = gpu["maxReplicas"] * int(limits["nvidia.com/gpu"])
    assert 0 < job.stages["embed"].actors * job.stages["embed"].gpus_per_actor <= there
