"""A real Prometheus with the documented configuration: what a head claims to be does not count."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import prometheus
import pytest
import yaml

ROOT = Path(__file__).parents[2]
HEAD = """
reef_training_iterations_total 5
reef_training_loss{policy="p",namespace="victim",job_name="other",pod="x",job="y",instance="z"} 1
reef_training_workers_lost{exported_namespace="victim"} 2
reef_job_phase{namespace="victim",job_name="other",phase="Failed"} 1
reef_operator_queue_depth 1000
up 0
anything_else 1
"""
OPERATOR = 'reef_job_phase{namespace="team",job_name="pole",phase="Running"} 1\n'
OWN = {"namespace": "team", "job_name": "pole", "pod": "pole-head-x", "job": "reef-heads"}


class Target(BaseHTTPRequestHandler):
    """Answers as its path says: /head or /operator."""

    def do_GET(self) -> None:
        body = {"/head": HEAD, "/operator": OPERATOR, "/flood": "".join(f"reef_x{{n='{i}'}} 1\n" for i in range(3000))}
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body[self.path].replace("'", '"').encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def scrapes(render: Callable[..., Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """What the documentation and the chart's monitors say of operator and heads, as scrape configurations."""
    jobs = {job["job_name"]: job for job in prometheus.documented()["scrape_configs"]}
    found = {"documented": {"operator": jobs["reef-operator"], "head": jobs["reef-heads"]}}
    monitors = {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}
    specs = {each["kind"]: each["spec"] for each in render(monitoring=monitors) if each["kind"].endswith("Monitor")}
    operator, head = specs["ServiceMonitor"]["endpoints"][0], specs["PodMonitor"]["podMetricsEndpoints"][0]
    found["chart"] = {
        "operator": {"job_name": "reef-operator", "honor_labels": operator["honorLabels"]},
        "head": {
            "job_name": "reef-heads",
            "honor_labels": head["honorLabels"],
            "sample_limit": specs["PodMonitor"]["sampleLimit"],
            "relabel_configs": snake(head["relabelings"]),
            "metric_relabel_configs": snake(head["metricRelabelings"]),
        },
    }
    return found


def snake(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return [{names.get(key, key): value for key, value in rule.items()} for rule in rules]


def discovered(address: str, path: str, component: str) -> dict[str, str]:
    """Labels as Kubernetes' discovery gives them."""
    meta, labels = "__meta_kubernetes_", "__meta_kubernetes_pod_label_"
    return {
        "__metrics_path__": path,
        "__address__": address,
        f"{meta}namespace": "reef-system" if component == "operator" else "team",
        f"{meta}pod_name": "pole-head-x",
        f"{meta}pod_phase": "Running",
        f"{meta}pod_ip": address.partition(":")[0],
        f"{meta}pod_annotation_prometheus_io_scrape": "true",
        f"{meta}pod_annotation_prometheus_io_port": address.partition(":")[2],
        f"{labels}app_kubernetes_io_name": "reef",
        f"{labels}app_kubernetes_io_component": component,
        f"{labels}reef_dev_component": component,
        f"{labels}reef_dev_job": "pole",
    }


@pytest.fixture(params=["documented", "chart"])
def query(
    request: pytest.FixtureRequest, render: Callable[..., Any], prometheus_program: str, tmp_path: Path
) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Ask a Prometheus that has scraped an operator, a head and a head that tells too much."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Target)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address, configs = f"127.0.0.1:{server.server_port}", []
    for component, config in scrapes(render)[request.param].items():
        for path in ("/head", "/flood") if component == "head" else ("/operator",):
            here = {key: value for key, value in config.items() if key != "kubernetes_sd_configs"}
            target = discovered(address, path, component)
            here["static_configs"] = [{"targets": [address], "labels": target}]
            configs.append(here | {"job_name": config["job_name"] + ("-flood" if path == "/flood" else "")})
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": configs}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    log = (tmp_path / "log").open("w+")
    options = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    process = subprocess.Popen([prometheus_program, *options, "--web.listen-address=127.0.0.1:0"], stderr=log)
    try:
        yield asker(process, tmp_path / "log")
    finally:
        process.terminate()
        process.wait(20)
        server.shutdown()


def asker(process: subprocess.Popen[bytes], log: Path) -> Callable[[str], list[dict[str, Any]]]:
    deadline = time.monotonic() + 40

    def ask(expression: str) -> list[dict[str, Any]]:
        found = re.findall(r'Listening on" address=127\.0\.0\.1:(\d+)', log.read_text())
        if not found:
            return []
        form = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{found[0]}/api/v1/query?{form}", timeout=10) as answer:
            return [each["metric"] for each in json.load(answer)["data"]["result"]]

    def ready() -> bool:
        try:
            return len(ask("scrape_samples_scraped")) == 3
        except OSError:
            return False

    while not ready():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
    return ask


def test_heads_cannot_speak_for_others(query: Callable[[str], list[dict[str, Any]]]) -> None:
    (phase,) = query("reef_job_phase")
    assert (phase["namespace"], phase["job_name"], phase["phase"]) == ("team", "pole", "Running")
    heads = query('{job="reef-heads",__name__=~"reef_.+"}')
    assert {each["__name__"] for each in heads} == {
        "reef_training_iterations_total",
        "reef_training_loss",
        "reef_training_workers_lost",
    }
    for each in heads:
        assert each.items() >= OWN.items()
        assert "victim" not in each.values() and "other" not in each.values()
    assert query("reef_operator_queue_depth") == query("anything_else") == query("up == 0 and reef_job_phase") == []
    assert [each["job"] for each in query("up == 0")] == ["reef-heads-flood"], "it tells too much"
    assert query("reef_x") == []
