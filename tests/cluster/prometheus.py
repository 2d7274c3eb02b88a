"""A real Prometheus that scrapes Reef on the test cluster as the chart's README says."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from installation import CHART
from kube.cluster import Cluster
from kube.debian import unpacked
from kube.progress import run, wait_until

DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}


class Prometheus:
    """Prometheus' own HTTP interface."""

    def __init__(self, address: str) -> None:
        self.address = address

    def ready(self) -> bool:
        """True, or an OSError as long as it cannot answer; it listens before that."""
        with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=10):
            return True

    def ask(self, path: str, **form: str) -> Any:
        """What it answers, also when that is a refusal."""
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", data, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            return json.load(refusal)

    def query(self, expression: str, **times: str) -> list[dict[str, Any]]:
        """Series of an expression; with start, end and step over that range."""
        answer = self.ask("/api/v1/query_range" if "step" in times else "/api/v1/query", query=expression, **times)
        assert answer["status"] == "success", f"{expression}: {answer}"
        return list(answer["data"]["result"])

    def targets(self) -> list[dict[str, Any]]:
        """What it scrapes."""
        return list(self.ask("/api/v1/targets?state=active")["data"]["activeTargets"])

    def firing(self, **labels: str) -> bool:
        """Whether an alert with these labels fires."""
        alerts = self.ask("/api/v1/alerts")["data"]["alerts"]
        return any(each["state"] == "firing" and labels.items() <= each["labels"].items() for each in alerts)


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """A panel's expression with the dashboard's variables put in, as Grafana would ask it."""
    for name, value in variables.items():
        expression = expression.replace(f"${name}", value)
    return expression


def documented() -> dict[str, Any]:
    """The configuration in the chart's README."""
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    return dict(yaml.safe_load(block))


def configuration(folder: Path, cluster: Cluster, interval: str, rules: str) -> Path:
    """The documented configuration, in a hurry, for a Prometheus outside the cluster."""
    config, path = documented(), folder / "prometheus.yml"
    config |= {"global": {"scrape_interval": interval, "evaluation_interval": interval}, "rule_files": ["rules.yaml"]}
    (folder / "rules.yaml").write_text(rules)
    for scrape in config["scrape_configs"]:
        for discovery in scrape["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(cluster.kubeconfig)
    path.write_text(yaml.safe_dump(config))
    run([program("promtool"), "check", "config", path])
    return path


def program(name: str) -> Path:
    """`prometheus` or `promtool`, of the first Debian whose Prometheus has Kubernetes service discovery.

    Raises:
        ClusterError: it cannot be had.
    """
    return unpacked("trixie", "prometheus", "promtool") / "usr" / "bin" / name


@contextlib.contextmanager
def scraping(cluster: Cluster, folder: Path, *, interval: str, rules: str = "groups: []\n") -> Iterator[Prometheus]:
    """A Prometheus that is stopped in the end; on this machine, which reaches pods by address.

    Args:
        cluster: whose pods it scrapes.
        folder: for its configuration, data and log.
        interval: between two scrapes, and between two looks at the rules.
        rules: text of the file of alerts.

    Raises:
        ClusterError: it cannot be had.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log, found = folder / "log", Prometheus(address)
    config = configuration(folder, cluster, interval, rules)
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={address}"]
    with log.open("w") as out:
        process = subprocess.Popen([program("prometheus"), *options], stdout=out, stderr=out)
    try:
        wait_until("Prometheus", found.ready, timeout_s=60, log=log)
        yield found
    finally:
        process.terminate()
        process.wait(timeout=20)
