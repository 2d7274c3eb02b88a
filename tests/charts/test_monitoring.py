"""Alerts and dashboards: promtool tests the rules, a real Prometheus answers every panel, and every metric exists."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reef.run.prometheus import RunState
from reef.run.reporters.reporter import Applications, Run
from reef.run.stopping import StopConditions

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "reef"
RULES = [
    rule for group in yaml.safe_load((CHART / "rules" / "reef.yaml").read_text())["groups"] for rule in group["rules"]
]
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}
ALERTS = {
    "ReefJobStuckPending",
    "ReefJobNoProgress",
    "ReefJobRestartStorm",
    "ReefJobStaleCheckpoint",
    "ReefJobNanLoss",
    "ReefJobStaleWeights",
    "ReefJobDropsBatches",
    "ReefJobNoApplications",
    "ReefJobRefusesApplications",
    "ReefJobFailed",
    "ReefJobGpuIdle",
    "ReefOperatorDown",
    "ReefOperatorQueueAge",
    "ReefOperatorWatchStale",
}
FILLED = {"$namespace": "a", "$job_name": "j", "$__rate_interval": "1m"}  # what Grafana puts into an expression
Query = Callable[[str, dict[str, str]], Any]


def panels() -> Iterator[tuple[str, str]]:
    """Place and expression of everything that a dashboard asks."""
    for name, board in DASHBOARDS.items():
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']} {target['refId']}", filled(target["expr"])


def filled(expression: str) -> str:
    for variable, value in FILLED.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"Grafana fills no such variable: {expression}"
    return expression


EXPRESSIONS = dict(panels()) | {rule["alert"]: rule["expr"] for rule in RULES}


def run(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_checks_the_rules(promtool: str):
    run(promtool, "check", "rules", CHART / "rules" / "reef.yaml")


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path):
    shutil.copy(CHART / "rules" / "reef.yaml", tmp_path)
    shutil.copy(Path(__file__).parent / "alerts.test.yaml", tmp_path)
    run(promtool, "test", "rules", tmp_path / "alerts.test.yaml")


def test_every_alert_is_tested_and_says_what_to_do():
    assert {rule["alert"] for rule in RULES} == ALERTS
    tests = yaml.safe_load((Path(__file__).parent / "alerts.test.yaml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    for silent in (True, False):
        assert {case["alertname"] for case in cases if (not case["exp_alerts"]) is silent} == ALERTS
    for rule in RULES:
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_dashboards_have_a_name_of_their_own_and_a_choice_of_data_source():
    assert {name: board["uid"] for name, board in DASHBOARDS.items()} == {
        "fleet": "reef-fleet",
        "job": "reef-job",
        "operator": "reef-operator",
    }
    for board in DASHBOARDS.values():
        first, *others = board["templating"]["list"]
        assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
        shown = [panel for panel in board["panels"] if panel["type"] != "row"]
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        for part in [*others, *shown, *(target for panel in shown for target in panel["targets"])]:
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_cover_each_other():
    for board in DASHBOARDS.values():
        taken: set[tuple[int, int]] = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert place["x"] + place["w"] <= 24
            assert not cells & taken, panel["title"]
            taken |= cells


def test_no_panel_is_left_to_grafanas_own_choice_of_colours_and_names():
    """A number without a colour turns red at 80; a line without a name shows the metric with all its labels."""
    for board in DASHBOARDS.values():
        for panel in board["panels"]:
            if panel["type"] == "stat":
                assert panel["fieldConfig"]["defaults"].keys() & {"color", "thresholds"}, panel["title"]
            if panel["type"] == "timeseries":
                assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]


def trainer_names() -> set[str]:
    """What a head's /metrics can hold, from the state of a run itself."""
    run_state = RunState()
    played = Applications(open_episodes=1, queued_steps=1, refused={401: 1})
    run_state.start(
        Run(
            folder=Path("/r"),
            algorithm="PPO",
            environment="E",
            config={"num_rollout_workers": 2},
            stop=StopConditions({}),
            applications=lambda: played,
        )
    )
    statistics = {
        "total_loss": 0.5,
        "kl": 0.1,
        "entropy": 0.1,
        "grad_gnorm": 0.1,
        "cur_lr": 0.1,
        "vf_explained_var": 0.1,
        "staleness": 0.1,
        "staleness_max": 0.1,
    }
    episodes = {f"episode_reward_{kind}": 1.0 for kind in ("mean", "min", "max")} | {"episode_len_mean": 1.0}
    run_state.report(
        episodes
        | {
            "training_iteration": 1,
            "num_env_steps_sampled_throughput_per_sec": 1.0,
            "time_this_iter_s": 1.0,
            "timestamp": 1.0,
            "counters": {"num_batches_dropped": 1, "num_gradients_dropped": 1},
            "timers": {"sample_time_ms": 1.0, "learn_time_ms": 1.0},
            "num_healthy_workers": 1,
            "num_waiting_workers": 1,
            "num_lost_workers": 1,
            "info": {"learner": {"p": {"learner_stats": statistics}}},
            "evaluation": {**episodes, "episodes_this_iter": 1},
        }
    )
    return {sample.name for family in run_state.collect() for sample in family.samples}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Metrics of the trainer as it reports them, with a checkpoint, and of a sweep; the operator's sources name its."""
    names = trainer_names() | {f"reef_training_checkpoint_{part}" for part in ("iteration", "seconds", "bytes")}
    return names | {"reef_training_checkpoint_timestamp_seconds", "reef_sweep_trials"}


def operator_writes(name: str, sources: str) -> bool:
    """Whether the operator's sources name a metric, whole or without its prefix and what the client appends."""
    bare = re.sub(r"_(total|bucket|count|sum|info)$", "", name)
    short = re.sub(r"^reef_(operator|job)_", "", bare)
    return any(f'"{word}"' in sources for word in (name, bare, short))


def test_every_metric_that_is_asked_for_is_written(written: set[str]):
    sources = "".join(path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    asked = {name for expression in EXPRESSIONS.values() for name in re.findall(r"\breef_[a-z_]+", expression)}
    assert len(asked) > 40
    unknown = {
        name
        for name in asked
        if name not in written
        and not (name.startswith(("reef_operator_", "reef_job_")) and operator_writes(name, sources))
    }
    assert unknown == set()


@pytest.fixture(scope="module")
def query(prometheus_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    """A Prometheus without data, on loopback; stopped in the end."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text("global: {}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        command = [prometheus_program, *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{url}/-/ready", folder / "log", process)
        yield lambda path, form: ask(f"{url}/api/v1/{path}", form)
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_for(url: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + 30
    while time.monotonic() < limit and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"Prometheus did not start: {log.read_text()[-2000:]}")


def ask(url: str, form: dict[str, str]) -> Any:
    try:
        with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode(), timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        return json.load(refusal)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_prometheus_understands(query: Query, expression: str):
    answer = query("query", {"query": expression})
    assert answer["status"] == "success", f"{expression}: {answer}"


def test_prometheus_understands_the_choices_of_the_variables(query: Query):
    for board in DASHBOARDS.values():
        for variable in board["templating"]["list"][1:]:
            series = filled(re.fullmatch(r"label_values\((.+), \w+\)", variable["definition"])[1])
            assert query("series", {"match[]": series})["status"] == "success", variable["definition"]


def test_a_wrong_expression_would_be_noticed(query: Query):
    assert query("query", {"query": "sum by (a) rate(b)"})["status"] == "error"
