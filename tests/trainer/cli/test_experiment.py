"""From a job document to the settings, the local resources and the call that trains."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from reef.api import RLTrainingJob, job_from_document, load_job
from reef.cli.experiment import Options, kubernetes_notice, local_pods, run_job, storage_path_of, with_workers_that_fit
from reef.cli.main import main
from reef.errors import ConfigError, ResourceError
from reef.job.settings import config_of

ROOT = Path(__file__).parents[3]


def document(environment: str = "CartPole-v1", **spec: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"algorithm": "PPO", "environment": {"name": environment}, "stop": {"training_iteration": 2}}
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "cart"}, "spec": base | spec}


def job(environment: str = "CartPole-v1", **spec: Any) -> RLTrainingJob:
    return job_from_document(document(environment, **spec))


POOLS = [
    {"name": "a", "replicas": 2, "resources": {"requests": {"cpu": 2}}},
    {"name": "g", "replicas": 1, "gpu": {"count": 1}, "rolloutWorkers": 0, "nodeSelector": {"gpu": "yes"}},
]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stand in for the engine: record how it is called."""
    found: list[dict[str, Any]] = []

    def run_experiment(config: Any, **arguments: Any) -> SimpleNamespace:
        found.append({"config": config, **arguments})
        place = arguments["storage_path"]
        uri = f"{place}/cart" if "://" in str(place) else None
        folder = Path("/copy/cart") if uri else place / "cart"
        checkpoint, picture = folder / "ck 1", folder / "curve.png"
        return SimpleNamespace(folder=folder, checkpoint=checkpoint, picture=picture, exit_code=143, uri=uri, result={})

    monkeypatch.setattr("reef.run.build.run_experiment", run_experiment)
    return found


def resources(**spec: Any) -> tuple[float, float]:
    pods = local_pods(job(**spec))
    assert pods is not None
    return pods.total("CPU"), pods.total("GPU")


def test_pools_become_local_resources() -> None:
    assert local_pods(job()) is None
    assert resources(workers=POOLS) == (1 + 2 * 2 + 1, 1)
    assert resources(workers=POOLS[:1], replicas=1) == (1 + 2, 0)
    halves = [{"name": "a", "replicas": 3, "resources": {"requests": {"cpu": "500m"}}}]
    assert resources(workers=halves) == (1 + 3, 0)  # a pod's part of a CPU counts as one, as in a cluster


def test_rollout_workers_without_room_are_left_out_as_in_a_cluster() -> None:
    asked = job(workers=[{"name": "a", "replicas": 2, "rolloutWorkers": 3}])
    config, pods = config_of(asked), local_pods(asked)
    assert pods is not None
    with pytest.warns(UserWarning, match="num_rollout_workers=6: the job's pods have room for 3, which are used"):
        config = with_workers_that_fit(config, pods)
    assert config.num_rollout_workers == 3


def test_local_mode_trains_in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "reef.distributed.start", None)  # no Ray
    small = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1}
    asked = job(config=small | {"num_rollout_workers": 2, "num_learner_workers": 1}, stop={"training_iteration": 1})
    assert run_job(asked, Options(tmp_path, local_mode=True)) == 0
    (params,) = tmp_path.glob("*/*/params.json")
    assert json.loads(params.read_text())["num_rollout_workers"] == 0
    sweep = job(tune={"parameters": {"lr": {"grid": [0.1, 0.2]}}})
    with pytest.raises(ConfigError, match="--local-mode: the trials of a sweep are processes"):
        run_job(sweep, Options(tmp_path, local_mode=True))


def test_a_missing_gpu_is_named_before_ray_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setitem(sys.modules, "reef.distributed.start", None)
    with pytest.raises(ResourceError, match="num_gpus=1.0 asks for a GPU"):
        run_job(job(workers=POOLS, config={"num_gpus": 1}), Options(tmp_path))


def test_what_only_kubernetes_does_is_named_in_one_notice() -> None:
    assert kubernetes_notice(job()) == ""
    assert kubernetes_notice(load_job(ROOT / "examples/cartpole-ppo.yaml")) == ""
    notice = kubernetes_notice(job(workers=POOLS, ttlSecondsAfterFinished=3))
    assert notice.endswith("no effect here: ttlSecondsAfterFinished, workers[1].nodeSelector.")
    lost = {"faultTolerance": {"backoffLimit": 1, "noRetryExitCodes": [2]}}
    sweep = {"tune": {"parameters": {"lr": {"grid": [1e-3]}}}}
    assert kubernetes_notice(job(**lost)).endswith("no effect here: faultTolerance.")
    external = {"tokenSecretRef": {"name": "t"}, "from": [{"podSelector": {}}]}
    assert kubernetes_notice(job(externalInput=external)).endswith("no effect here: externalInput.")
    assert kubernetes_notice(job(**lost, **sweep)).endswith("no effect here: faultTolerance.noRetryExitCodes.")
    full = kubernetes_notice(load_job(ROOT / "examples/kubernetes-gpu.yaml"))
    for field in ("image", "checkpoint.storage", "head.priorityClassName", "workers[0].minReplicas", "cleanup"):
        assert field in full
    for field in ("head.gpu.product", "head.resources.limits.memory", "head.gpu.resourceName"):
        assert full.count(field) == 1
    assert ".cpu" not in full


def test_the_engine_gets_the_whole_job(
    calls: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = job(checkpoint={"frequency": 7, "keep": 0, "scoreAttribute": "min-episode_len_mean", "atEnd": False})
    assert run_job(asked, Options(tmp_path, resume=True, metrics_port=9100, verbosity=1)) == 143
    (call,) = calls
    assert call.pop("config").log_level == "INFO"
    assert asdict(call.pop("checkpoint")) == {
        "frequency": 7,
        "at_end": False,
        "keep": 0,
        "score_attribute": "min-episode_len_mean",
    }
    assert call == {
        "stop": {"training_iteration": 2.0},
        "name": "cart",
        "storage_path": tmp_path,
        "resume": True,
        "restore_from": None,
        "metrics_port": 9100,
        "verbosity": 1,
        "local": None,
    }
    out = capsys.readouterr().out
    assert f"reef evaluate '{tmp_path}/cart/ck 1' --episodes 10" in out
    assert "curve.png" in out


STORED = {"checkpoint": {"storage": {"uri": "s3://bucket/folder", "secretRef": {"name": "s3"}}}}


@pytest.mark.parametrize(
    ("spec", "given", "used"),
    [
        ({}, None, "~/reef_results"),
        (STORED, None, "s3://bucket/folder"),
        (STORED, "/results", "/results"),
        (STORED, "s3://other", "s3://other"),
        ({"checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": "c"}}}}, None, "~/reef_results"),
    ],
)
def test_results_go_where_the_command_line_says_or_else_the_document(
    spec: dict[str, Any], given: str | None, used: str
) -> None:
    assert storage_path_of(job(**spec), Options(given)) == used


def test_the_next_command_is_one_that_the_shell_finds(
    calls: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `make run` nobody has activated .venv."""
    program = tmp_path / ".venv/bin/reef"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(program), "run"])
    monkeypatch.setenv("PATH", "/usr/bin")
    run_job(job(), Options(tmp_path))
    assert f"\n  {program} evaluate " in capsys.readouterr().out
    monkeypatch.setenv("PATH", str(program.parent))
    run_job(job(), Options(tmp_path))
    assert "\n  reef evaluate " in capsys.readouterr().out


@pytest.mark.usefixtures("calls")
def test_a_run_that_ended_before_an_iteration_did_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = SimpleNamespace(result=None, exit_code=130)
    monkeypatch.setattr("reef.run.build.run_experiment", lambda config, **_: nothing)
    assert run_job(job(), Options(tmp_path)) == 130
    out = capsys.readouterr().out
    assert "No iteration ended, nothing was written." in out
    assert "Checkpoint" not in out


@pytest.mark.usefixtures("calls")
def test_the_command_to_go_on_with_finds_the_modules_that_were_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REEF_LAST_FOLDER", "/home/me/my envs")
    for own, expected in (("", "'/home/me/my envs'"), ("/mine", "'/mine:/home/me/my envs'")):
        monkeypatch.setenv("PYTHONPATH", own)
        run_job(job(), Options(tmp_path))
        assert f"\n  PYTHONPATH={expected} " in capsys.readouterr().out


def test_what_is_in_an_object_store_is_named_by_its_address(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_job(job(**STORED), Options()) == 143
    assert calls[0]["storage_path"] == "s3://bucket/folder"
    out = capsys.readouterr().out
    assert "reef evaluate 's3://bucket/folder/cart/ck 1' --episodes 10" in out
    assert "Copy of them    /copy/cart" in out
    assert "no effect here: checkpoint.storage.secretRef." in out


def test_a_local_ray_as_large_as_the_pools_lives_as_long_as_the_training(
    calls: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []

    class Session:
        def __enter__(self) -> None:
            events.append("enter")

        def __exit__(self, *exception: object) -> None:
            events.append(len(calls))

    def start(address: str | None, **sizes: Any) -> Session:
        events.append((address, sizes["num_cpus"], sizes["num_gpus"]))
        return Session()

    module = ModuleType("reef.distributed.start")
    vars(module).update(start=start)
    monkeypatch.setitem(sys.modules, "reef.distributed.start", module)
    monkeypatch.setattr("reef.distributed.resources.check_resources", lambda config: events.append("checked"))
    run_job(job(workers=POOLS), Options(tmp_path))
    assert events == [(None, 6.0, 1), "enter", "checked", 1]
    events.clear()
    run_job(job(workers=POOLS), Options(tmp_path, ray_num_cpus=9))
    run_job(job(workers=POOLS), Options(tmp_path, ray_num_cpus=0))
    run_job(job(workers=POOLS), Options(tmp_path, ray_address="auto"))
    sizes = [event for event in events if isinstance(event, tuple)]
    assert sizes == [(None, 9, 1), (None, 0, 1), ("auto", None, None)]
    events.clear()
    run_job(job(), Options(tmp_path))
    assert events == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"algorithm": "PPPO"}, "'PPO'"),
    ({"environment": "CartPol-v1"}, "'CartPole-v1'"),
    ({"environment": "no.such.module:Env"}, "no.such.module"),
    ({"environment": "math:sqrt"}, "cannot be made"),
    ({"config": {"lrr": 1}}, "'lr'"),
    ({"config": {"lr": "fast"}}, "lr='fast'"),
    ({"config": {"gamma": 3}}, "gamma=3"),
    ({"config": {"env": "CartPole-v1"}}, "spec.environment.name"),
    ({"config": {"ignore_worker_failures": True, "recreate_failed_workers": True}}, "exclude each other"),
    ({"restoreFrom": "/no/such/checkpoint"}, "/no/such/checkpoint"),
    ({"checkpoint": {"scoreAttribute": "episode_reward_men"}}, "'episode_reward_mean'"),
    ({"tune": {"parameters": {"lrr": {"grid": [1, 2]}}}}, "spec.tune.parameters.lrr: PPO has no such setting"),
    ({"tune": {"parameters": {"lr": {"grid": ["fast"]}}}}, "spec.tune.parameters.lr='fast'"),
    ({"tune": {"parameters": {"lr": {"grid": [1]}}, "metric": "reward"}}, "spec.tune.metric"),
]


@pytest.mark.parametrize(("changes", "expected"), WRONG)
def test_wrong_use_is_one_message_and_nothing_is_written(
    changes: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"  # JSON is YAML
    path.write_text(json.dumps(document(**changes)))
    assert main(["run", str(path), "--storage-path", str(tmp_path / "results")]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert not (tmp_path / "results").exists()


def test_a_storage_path_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    flags = ["--algo", "PPO", "--env", "CartPole-v1", "--stop", '{"training_iteration": 1}']
    assert main(["train", *flags, "--storage-path", str(tmp_path / "file" / "results")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_the_environment_is_tried_before_ray_is_started(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CartPole-v1"):
        run_job(job("CartPol-v1", workers=POOLS), Options(tmp_path))
    with pytest.raises(ConfigError, match="'Nothing' is unknown"):
        run_job(job(workers=POOLS, config={"exploration_config": {"type": "Nothing"}}), Options(tmp_path))


def test_a_job_trains_and_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.dumps({"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1})
    flags = ["--algo", "PPO", "--env", "CartPole-v1", "--stop", '{"training_iteration": 2}', "--config", config]
    assert main(["train", *flags, "--storage-path", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    command = next(line for line in out.splitlines() if line.strip().startswith("reef evaluate "))
    assert "Results         " in out
    assert main([*command.split()[1:3], "--episodes", "1"]) == 0


OWN_ALGORITHM = """
from reef.algorithms.ppo import PPO
BUILT = []

class Mine(PPO):
    def setup(self):
        BUILT.append(self.config.algorithm)
"""


def test_an_algorithm_of_your_own_is_trained_resumed_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_algorithm.py").write_text(OWN_ALGORITHM)
    monkeypatch.syspath_prepend(str(tmp_path))
    path, name = tmp_path / "job.json", "own_algorithm:Mine"
    small = {"train_batch_size": 64, "sgd_minibatch_size": 64, "num_sgd_iter": 1}
    path.write_text(json.dumps(document(algorithm=name, config=small)))
    results = ["--storage-path", str(tmp_path / "results")]
    assert main(["run", str(path), "--set", "stop.training_iteration=1", *results]) == 0
    assert main(["run", str(path), *results, "--resume"]) == 0
    (folder,) = (tmp_path / "results").glob("cart/own-algorithm-Mine_CartPole-v1_*")
    assert main(["evaluate", str(folder / "checkpoint_000002"), "--episodes", "1"]) == 0
    assert main(["evaluate", str(folder), "--episodes", "1", "--algo", name]) == 0
    built = sys.modules["own_algorithm"].BUILT
    assert built == [name] * 4
    assert main(["evaluate", str(folder), "--algo", "PPO"]) == 2
    assert f"the checkpoint is of {name}" in capsys.readouterr().err
    assert main(["run", str(path), *results, "--set", "algorithm=PPO", "--set", f"restoreFrom={folder}"]) == 2
    assert f"was written by {name}, but PPO is to be trained" in capsys.readouterr().err
