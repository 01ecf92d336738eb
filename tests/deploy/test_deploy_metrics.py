"""Alerts, dashboard and the documented table speak of the metrics that runs set."""

import json
import re
import shutil
import subprocess
from itertools import combinations

import pytest
from support.deploy_files import DEPLOY, README, documents

from pipelines.runtime.metrics import METRICS

pytestmark = pytest.mark.timeout(60)

FOLDER = DEPLOY / "prometheus"
METRIC = re.compile(r"\bray_[a-z_]+")
DOCUMENTED = set(re.findall(r"^\| `(ray_\w+)`", README, re.MULTILINE))
BESIDE = set(METRIC.findall(README[README.index("Beside them") : README.index("| alert |")]))


def all_rules() -> list[dict]:
    [found] = documents(FOLDER / "alerts.yml")
    return [rule for group in found["groups"] for rule in group["rules"]]


def rules() -> list[dict]:
    return [rule for rule in all_rules() if "alert" in rule]


def panels() -> list[dict]:
    return json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]


def test_documented_metrics_are_those_that_runs_set():
    assert {f"ray_{name}" for name in METRICS} == DOCUMENTED


def test_alerts_and_dashboard_use_documented_metrics_and_nothing_else():
    in_alerts = {name for rule in all_rules() for name in METRIC.findall(rule["expr"])}
    shown = {
        name
        for panel in panels()
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    assert in_alerts | shown <= DOCUMENTED | BESIDE
    assert in_alerts | shown >= BESIDE  # nothing is documented for nothing
    assert len(shown & DOCUMENTED) >= 9


def test_alerts_use_every_recorded_fact_and_no_other():
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    used = {name for rule in rules() for name in re.findall(r"\bsbert:\w+", rule["expr"])}
    assert used == recorded


def test_every_alert_is_documented_says_what_to_do_and_has_its_test():
    names = [rule["alert"] for rule in rules()]
    assert re.findall(r"^\| `(\w+)` \|", README.partition("| alert |")[2], re.MULTILINE) == names
    [tests] = documents(FOLDER / "alerts_test.yml")
    tried = [case for test in tests["tests"] for case in test["alert_rule_test"]]
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "action"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        cases = [case for case in tried if case["alertname"] == rule["alert"]]
        assert any(case.get("exp_alerts") for case in cases), rule["alert"]


def test_scrape_config_loads_the_alerts_and_finds_nodes_by_the_file_of_ray():
    [config] = documents(FOLDER / "prometheus.yml")
    assert config["rule_files"] == ["alerts.yml"]
    by_file, static = config["scrape_configs"]
    [file] = by_file["file_sd_configs"][0]["files"]
    assert file.endswith("/prom_metrics_service_discovery.json")
    assert file in README
    assert "static_configs" in static
    down = next(rule for rule in rules() if rule["alert"] == "RayTargetDown")
    pattern = re.search(r'job=~"(.+?)"', down["expr"])[1]
    assert all(re.fullmatch(pattern, job["job_name"]) for job in (by_file, static))


def test_dashboard_is_one_page_without_overlaps_on_any_prometheus():
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert panel["description"], panel["title"]
        for item in (panel, *panel["targets"]):
            assert item["datasource"]["uid"] == "${datasource}", panel["title"]
    for one, other in combinations(found, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = any(a[k] + a[s] <= b[k] or b[k] + b[s] <= a[k] for k, s in (("x", "w"), ("y", "h")))
        assert apart, f"{one['title']} covers {other['title']}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "command",
    ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts_test.yml"],
)
def test_promtool_agrees(command):
    done = subprocess.run(
        ["promtool", *command.split()], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
