"""A real Prometheus finds operator and heads, answers every panel, and its alerts fire."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from discovery import pods_over_http
from installation import CHART, Installation, pool, small_job
from kube.cluster import Cluster, OwnCluster
from kube.progress import ClusterError, run, wait_until

pytestmark = pytest.mark.timeout(600)
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}
NOTHING_TO_SHOW = {  # while all is well, and without DCGM's exporter
    "fleet: Heads started A",
    "fleet: Workers replaced per hour A",
    "fleet: Containers started again A",
    "job: GPU use A",
    "job: Workers replaced B",
    "operator: Looks per second B",
    "operator: Refused or failed requests A",
}
SLEEPERS = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    if (folder / "cmdline").read_bytes().startswith(b"ray::Host"):
        os.kill(int(folder.name), signal.SIGSTOP)
        break
else:
    raise SystemExit("no rollout worker runs here")
"""


class Prometheus:
    """Prometheus' own HTTP interface."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ask(self, path: str, **form: str) -> Any:
        """What it answers, also when that is a refusal."""
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", data, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series of an expression."""
        answer = self.ask("/api/v1/query", query=expression)
        assert answer["status"] == "success", f"{expression}: {answer}"
        return list(answer["data"]["result"])

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        return list(self.ask("/api/v1/targets?state=active")["data"]["activeTargets"])

    def firing(self, **labels: str) -> bool:
        """Whether an alert with these labels fires."""
        alerts = self.ask("/api/v1/alerts")["data"]["alerts"]
        return any(each["state"] == "firing" and labels.items() <= each["labels"].items() for each in alerts)


def documented() -> dict[str, Any]:
    """The configuration in the chart's README."""
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    return dict(yaml.safe_load(block))


def hurried_rules() -> str:
    """The chart's alerts, which do not wait to be sure."""
    rules = yaml.safe_load((CHART / "rules" / "reef.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
            if rule["alert"] == "ReefJobNoProgress":
                assert ", 900)" in rule["expr"]
                rule["expr"] = rule["expr"].replace(", 900)", ", 5)")
    return yaml.safe_dump(rules)


def panels(namespace: str, job_name: str) -> dict[str, str]:
    """Every expression of every dashboard, as Grafana would ask it."""
    filled = {"$namespace": namespace, "$job_name": job_name, "$__rate_interval": "15s"}
    found: dict[str, str] = {}
    for name, board in DASHBOARDS.items():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"]
                for variable, value in filled.items():
                    expression = expression.replace(variable, value)
                found[f"{name}: {panel['title']} {target['refId']}"] = expression
    return found


def configuration(folder: Path, cluster: Cluster, pods_url: str) -> Path:
    """The documented configuration, in a hurry; where Prometheus lacks Kubernetes discovery, with another's."""
    config, path = documented(), folder / "prometheus.yml"
    config |= {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"]}
    (folder / "rules.yaml").write_text(hurried_rules())
    for scrape in config["scrape_configs"]:
        for discovery in scrape["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(cluster.kubeconfig)
    path.write_text(yaml.safe_dump(config))
    try:
        run(["promtool", "check", "config", path])
    except ClusterError as refusal:
        if "kubernetes_sd_configs not found" not in str(refusal):
            raise
        for scrape in config["scrape_configs"]:
            assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod", "kubeconfig_file": str(cluster.kubeconfig)}]
            scrape["http_sd_configs"] = [{"url": pods_url, "refresh_interval": "1s"}]
        path.write_text(yaml.safe_dump(config))
        run(["promtool", "check", "config", path])
    return path


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus with the documented configuration; on this machine, which reaches pods by address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not there; on Debian: apt-get install prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log, found = tmp_path / "log", Prometheus(address)
    with pods_over_http(cluster.api) as pods_url:
        config = configuration(tmp_path, cluster, pods_url)
        options = [f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
        with log.open("w") as out:
            process = subprocess.Popen([program, *options, f"--web.listen-address={address}"], stdout=out, stderr=out)
        try:
            wait_until("Prometheus", lambda: bool(found.query("vector(1)")), timeout_s=30, log=log)
            yield found
        finally:
            process.terminate()
            process.wait(timeout=20)


def test_dashboards_show_a_job_and_alerts_fire(
    reef: Installation, own_cluster: OwnCluster, namespace: str, prometheus: Prometheus
) -> None:
    """A running job on every panel; then one that finds no node, one that hangs, and no operator."""
    job = small_job(
        "shown",
        workers=[pool()],
        stop={"training_iteration": 1_000_000},
        config={"num_rollout_workers": 1, "evaluation_interval": 5, "evaluation_duration": 1},
    )
    own_cluster.apply(job, namespace=namespace)
    reef.wait("shown", lambda now: bool(now.get("evaluation") and now.get("checkpoint")), namespace=namespace)

    (head,) = reef.pods("shown", namespace, "head")
    addresses = {f"{head['status']['podIP']}:8080", f"{reef.pod()['status']['podIP']}:8081"}

    def found() -> bool:
        seen = {(each["labels"]["instance"], each["health"]) for each in prometheus.targets()}
        return seen == {(address, "up") for address in addresses}

    wait_until("both targets, and no others, to be scraped", found, timeout_s=30)
    asked = panels(namespace, "shown")

    def empty() -> set[str]:
        return {place for place, expression in asked.items() if not prometheus.query(expression)}

    with contextlib.suppress(ClusterError):
        wait_until("every panel to show something", lambda: empty() <= NOTHING_TO_SHOW, timeout_s=40)
    assert empty() - NOTHING_TO_SHOW == set()
    for rule in prometheus.ask("/api/v1/rules")["data"]["groups"]:
        assert {each["health"] for each in rule["rules"]} == {"ok"}, rule
    labels = {"namespace": namespace, "job_name": "shown"}
    (series,) = prometheus.query(f'reef_training_iterations_total{{namespace="{namespace}"}}')
    assert labels.items() <= series["metric"].items()
    assert int(prometheus.query(asked["fleet: Running A"])[0]["value"][1]) == 1

    lonely = {"nodeSelector": {"disk": "none-has-this"}}
    own_cluster.apply(small_job("lonely", head=lonely), namespace=namespace)
    worker = reef.pods("shown", namespace, "worker")[0]["metadata"]["name"]
    own_cluster.kubectl("exec", "-n", namespace, worker, "--", "python", "-c", SLEEPERS)
    for alert in (
        {"alertname": "ReefJobStuckPending", "namespace": namespace, "job_name": "lonely"},
        {"alertname": "ReefJobNoProgress", **labels},
    ):
        wait_until(f"{alert} to fire", lambda: prometheus.firing(**alert), timeout_s=40)  # noqa: B023

    assert not prometheus.firing(alertname="ReefOperatorDown")
    scale = ("scale", "deployment", reef.deployment, "-n", reef.namespace)
    try:
        own_cluster.kubectl(*scale, "--replicas=0")
        wait_until("ReefOperatorDown to fire", lambda: prometheus.firing(alertname="ReefOperatorDown"), timeout_s=60)
    finally:
        own_cluster.kubectl(*scale, "--replicas=1")
        reef.await_operator()
    wait_until("ReefOperatorDown to end", lambda: not prometheus.firing(alertname="ReefOperatorDown"), timeout_s=40)


def test_the_rules_are_right(tmp_path: Path) -> None:
    """In the words of promtool; and it would notice."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not there; on Debian: apt-get install prometheus")
    (tmp_path / "rules.yaml").write_text(hurried_rules())
    run(["promtool", "check", "rules", CHART / "rules" / "reef.yaml", tmp_path / "rules.yaml"])
    (tmp_path / "wrong.yaml").write_text(hurried_rules().replace("absent(", "absence("))
    with pytest.raises(ClusterError, match="absence"):
        run(["promtool", "check", "rules", tmp_path / "wrong.yaml"])
