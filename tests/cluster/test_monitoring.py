"""A real Prometheus finds operator and heads, answers every panel, and its alerts fire."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from installation import CHART, ROOT, SYSTEM, Installation, pool, small_job
from kube.cluster import Cluster, OwnCluster
from kube.progress import ClusterError, run, wait_until
from prometheus import DASHBOARDS, Prometheus, filled, program, scraping

pytestmark = pytest.mark.timeout(600)
NOTHING_TO_SHOW = {  # while all is well, and without DCGM's exporter
    "fleet: Heads started A",
    "fleet: Workers replaced per hour A",
    "fleet: Containers started again A",
    "job: GPU use A",
    "job: Workers replaced B",
    "operator: Looks per second B",
    "operator: Refused or failed requests A",
}
QUEUED = {"job: Batches before the learner B"}  # what the learner's queue alone has
REPLAYED = {"job: Replays of each step A", "job: Replay memory A", "job: Replay memory B"}
ASYNCHRONOUS = {  # what IMPALA or APEX has
    "job: Age of the weights that sample A",
    "job: Age of the weights that sample B",
    "job: Batches before the learner A",
    *QUEUED,
    *REPLAYED,
}
NOT_OF_PPO = ASYNCHRONOUS | {
    "job: Batches before the learner C",  # gradients that workers send
    "job: Steps before the learner A",  # and what only applications that play bring
    "job: Open episodes A",
    "job: Age of the weights that act A",
    "job: Age of the weights that act B",
    "job: Refused requests A",
}
SLEEPERS = """
import contextlib, os, pathlib, signal
def name(folder):
    with contextlib.suppress(OSError):  # it may have ended meanwhile
        return (folder / "cmdline").read_bytes()
    return b""
for folder in pathlib.Path("/proc").glob("[0-9]*"):
    if name(folder).startswith(b"ray::ActorProcess"):
        os.kill(int(folder.name), signal.SIGSTOP)
        break
else:
    raise SystemExit("no rollout worker runs here")
"""


def hurried_rules() -> str:
    """The chart's alerts, about this operator alone, which do not wait to be sure."""
    alive = "reef_operator_resync_timestamp_seconds"
    text = (CHART / "rules" / "reef.yaml").read_text().replace(alive, f'{alive}{{namespace="{SYSTEM}"}}')
    rules = yaml.safe_load(text)
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "1s"
            if rule["alert"] == "ReefJobNoProgress":
                assert ", 900)" in rule["expr"]
                rule["expr"] = rule["expr"].replace(", 900)", ", 5)")
    return yaml.safe_dump(rules)


def panels(namespace: str, job_name: str) -> dict[str, str]:
    """Every expression of every dashboard."""
    variables = {"namespace": namespace, "job_name": job_name, "__rate_interval": "15s"}
    return {
        f"{name}: {panel['title']} {target['refId']}": filled(target["expr"], variables)
        for name, board in DASHBOARDS.items()
        for panel in board["panels"]
        for target in panel.get("targets", [])
    }


def need_programs() -> None:
    """Skip the test where Prometheus cannot be had."""
    try:
        program("prometheus")
    except ClusterError as missing:
        if os.environ.get("REEF_REQUIRE_CLUSTER"):
            raise
        pytest.skip(str(missing))


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus with the documented configuration and the chart's alerts."""
    need_programs()
    with scraping(cluster, tmp_path, interval="1s", rules=hurried_rules()) as found:
        yield found


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
        return {(address, "up") for address in addresses} <= seen  # heads of tests before may still be going

    wait_until("both targets to be scraped", found, timeout_s=60)
    asked = panels(namespace, "shown")

    empty = set(asked)

    def shown() -> bool:
        nonlocal empty
        empty = {place for place, expression in asked.items() if not prometheus.query(expression)}
        return empty <= NOTHING_TO_SHOW | NOT_OF_PPO

    with contextlib.suppress(ClusterError):
        wait_until("every panel to show something", shown, timeout_s=90)
    assert empty - NOTHING_TO_SHOW == NOT_OF_PPO
    for rule in prometheus.ask("/api/v1/rules")["data"]["groups"]:
        assert {each["health"] for each in rule["rules"]} == {"ok"}, rule
    labels = {"namespace": namespace, "job_name": "shown"}

    def counted() -> bool:
        """Not for a moment after a scrape that came too late."""
        (series,) = prometheus.query(f'reef_training_iterations_total{{namespace="{namespace}"}}') or [{"metric": {}}]
        running = int(prometheus.query(asked["fleet: Running A"])[0]["value"][1])
        return labels.items() <= series["metric"].items() and running == 1

    wait_until("the job's labels, and one job that runs", counted, timeout_s=30)

    lonely = {"nodeSelector": {"disk": "none-has-this"}}
    own_cluster.apply(small_job("lonely", head=lonely), namespace=namespace)
    worker = reef.pods("shown", namespace, "worker")[0]["metadata"]["name"]
    own_cluster.kubectl("exec", "-n", namespace, worker, "--", "python", "-c", SLEEPERS)
    for alert in (
        {"alertname": "ReefJobStuckPending", "namespace": namespace, "job_name": "lonely"},
        {"alertname": "ReefJobNoProgress", **labels},
    ):
        wait_until(f"{alert} to fire", lambda: prometheus.firing(**alert), timeout_s=90)  # noqa: B023

    wait_until("no alert on the operator", lambda: not prometheus.firing(alertname="ReefOperatorDown"), timeout_s=30)
    scale = ("scale", "deployment", reef.deployment, "-n", reef.namespace)
    try:
        own_cluster.kubectl(*scale, "--replicas=0")
        wait_until("ReefOperatorDown to fire", lambda: prometheus.firing(alertname="ReefOperatorDown"), timeout_s=120)
    finally:
        own_cluster.kubectl(*scale, "--replicas=1")
        reef.await_operator()
    wait_until("ReefOperatorDown to end", lambda: not prometheus.firing(alertname="ReefOperatorDown"), timeout_s=90)


def test_the_rules_are_right(tmp_path: Path) -> None:
    """In the words of promtool; and it would notice."""
    need_programs()
    promtool = program("promtool")
    shutil.copy(CHART / "rules" / "reef.yaml", tmp_path)
    shutil.copy(ROOT / "tests" / "charts" / "alerts.test.yaml", tmp_path)
    (tmp_path / "hurried.yaml").write_text(hurried_rules())
    run([promtool, "check", "rules", tmp_path / "reef.yaml", tmp_path / "hurried.yaml"])
    run([promtool, "test", "rules", tmp_path / "alerts.test.yaml"])
    (tmp_path / "wrong.yaml").write_text(hurried_rules().replace("absent(", "absence("))
    with pytest.raises(ClusterError, match="absence"):
        run([promtool, "check", "rules", tmp_path / "wrong.yaml"])


@pytest.mark.parametrize(
    ("algorithm", "settings", "without"),
    [
        ("IMPALA", {}, REPLAYED),
        (
            "APEX",
            {"num_gpus": 0, "num_replay_buffer_shards": 2, "num_steps_sampled_before_learning_starts": 64},
            QUEUED,
        ),
    ],
)
def test_an_asynchronous_job_shows_the_age_of_its_weights_and_outlives_a_worker(
    reef: Installation,
    own_cluster: OwnCluster,
    namespace: str,
    prometheus: Prometheus,
    algorithm: str,
    settings: dict[str, Any],
    without: set[str],
) -> None:
    """Two worker pods, one of which is deleted: training goes on, and the dashboard's panels show it."""
    job = small_job("late", algorithm=algorithm, workers=[pool(replicas=2)], stop={"training_iteration": 1_000_000})
    job["spec"]["config"] = settings | {
        "num_rollout_workers": 2,
        "num_envs_per_worker": 2,
        "rollout_fragment_length": 16,
        "train_batch_size": 64,
        "min_sample_timesteps_per_iteration": 512,
        "recreate_failed_workers": True,
        "model": {"fcnet_hiddens": [16]},
    }
    own_cluster.apply(job, namespace=namespace)

    def iteration(status: dict[str, Any]) -> int:
        return int((status.get("training") or {}).get("iteration") or 0)

    status = reef.wait("late", lambda now: iteration(now) > 0 and now["workers"]["ready"] == 2, namespace=namespace)
    asked = {place: query for place, query in panels(namespace, "late").items() if place in ASYNCHRONOUS - without}
    wait_until("the panels of an asynchronous job", lambda: all(map(prometheus.query, asked.values())), timeout_s=60)
    (age,) = prometheus.query(asked["job: Age of the weights that sample A"])
    assert 0 <= float(age["value"][1]) < 20, "versions"
    victim = reef.pods("late", namespace, "worker")[0]["metadata"]["name"]
    own_cluster.kubectl("delete", "pod", victim, "-n", namespace, "--grace-period=0", "--force")
    before = iteration(status)
    status = reef.wait(
        "late",
        lambda now: now["workers"]["recreated"] >= 1 and now["workers"]["ready"] == 2 and iteration(now) > before + 5,
        namespace=namespace,
    )
    assert status["attempts"] == 1
