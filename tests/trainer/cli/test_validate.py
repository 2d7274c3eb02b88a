"""`reef validate`, `describe`, `list` and `schema`: what a person reads before training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from reef.algorithms.ppo import PPOConfig
from reef.algorithms.registry import ALGORITHMS, config_class
from reef.api.keys import KNOWN_SETTINGS
from reef.cli import schema
from reef.cli.main import main
from reef.config import AlgorithmConfig
from reef.config.describe import settings_of
from reef.config.refusals import REFUSALS

ROOT = Path(__file__).parents[3]
PPO = str(ROOT / "examples" / "cartpole-ppo.yaml")


def test_a_valid_document_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "config.num_rollout_workers=2", "--set", "ttlSecondsAfterFinished=5"]
    flags += ["--set", "stop.timesteps_total=5000000"]
    assert main(["validate", PPO, *flags]) == 0
    out = capsys.readouterr().out
    assert "valid. PPO on CartPole-v1, until episode_reward_mean 450, timesteps_total 5000000.\n" in out
    assert "ttlSecondsAfterFinished" in out


def test_what_has_no_effect_is_told(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """By `reef validate`, and by whoever trains."""
    settings = {"model": {"conv_activation": "elu"}}
    assert main(["validate", PPO, "--set", "config.model.conv_activation=elu"]) == 0
    expected = "model.conv_activation='elu' has no effect without an image in the observations."
    assert f"  But {expected}" in capsys.readouterr().out
    with PPOConfig.from_dict(settings).environment("CartPole-v1").build():
        assert expected in caplog.text


POOL = "workers=[{name: a, replicas: 2, rolloutWorkers: 2}]"


@pytest.mark.parametrize(
    ("changes", "here", "cluster"),
    [
        ((), "it samples in its own process.", "it samples in the head."),
        (("config.num_rollout_workers=1",), "1 rollout worker on this machine.", "1 rollout worker in the head."),
        (("config.num_rollout_workers=2",), "2 rollout workers on this machine.", "1 rollout worker in the head."),
        (
            (POOL,),
            "3 rollout workers on this machine, taken as one of 3 CPUs.",  # of 4, as pods of one CPU hold no two
            "2 rollout workers in 2 pods.",
        ),
        (
            ("config.num_rollout_workers=1", "config.num_cpus_per_worker=2"),
            "1 rollout worker on this machine.",
            "it would be refused: num_rollout_workers=1: the job's pods have room for 0",
        ),
    ],
)
def test_it_says_what_a_laptop_and_what_a_cluster_would_do(
    changes: tuple[str, ...], here: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", PPO, *(part for change in changes for part in ("--set", change))]) == 0
    out = capsys.readouterr().out
    assert f"  With `reef run`: {here}" in out
    assert f"  On Kubernetes: {cluster}" in out


@pytest.mark.parametrize(
    ("change", "cluster"),
    [
        ("config.num_rollout_workers=2", "its trials share the head and 2 pods."),
        (
            "config.num_rollout_workers=3",
            "it would be refused: num_rollout_workers=3 of a trial: the job's pods have room for 2, as each needs "
            "num_cpus_per_worker 1.",
        ),
        ("config.num_cpus_for_local_worker=9", "it would be refused: the process of a trial: the job's pods have room"),
    ],
)
def test_the_trials_of_a_sweep_are_compared_with_the_pods(
    change: str, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = [
        "--set",
        "workers=[{name: a, replicas: 2}]",
        "--set",
        "tune={parameters: {lr: {uniform: [0.001, 0.01]}}, numSamples: 2}",
    ]
    assert main(["validate", PPO, *sweep, "--set", change]) == 0
    out = capsys.readouterr().out
    assert "a sweep of 2 trials" in out and "With `reef run`: as many trials at a time as this machine has" in out
    assert f"  On Kubernetes: {cluster}" in out


def test_what_only_a_cluster_refuses_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever reaches the address of a pod could play; on a laptop it may be that of a home network."""
    changes = {
        "environment.name": "external",
        "config.observation_space": "{type: Box, low: -5.0, high: 5.0, shape: [4]}",
        "config.action_space": "{type: Discrete, n: 2}",
        "config.input_": "policy_server",
        "config.input_config": "{address: 0.0.0.0}",
        "config.num_envs_per_worker": "1",
    }
    assert main(["validate", PPO, *(part for key, to in changes.items() for part in ("--set", f"{key}={to}"))]) == 0
    out = capsys.readouterr().out
    assert "With `reef run`: it samples in its own process." in out
    assert "On Kubernetes: it would be refused: " in out and "as there is no token" in out


def test_all_documents_are_checked_and_one_wrong_one_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(Path(PPO).read_text().replace("CartPole-v1", "CartPol-v1"))
    missing = str(tmp_path / "missing.yaml")
    assert main(["validate", missing, str(wrong), PPO]) == 2
    said = capsys.readouterr()
    assert f"{PPO}: valid." in said.out
    assert [line.split(": ")[1] for line in said.err.splitlines()] == [missing, str(wrong)]
    assert main(["validate", PPO, PPO]) == 0


def test_pools_without_room_for_the_job_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", PPO, "--set", POOL, "--set", "config.num_cpus_per_worker=2"]) == 2
    assert "room for 0" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["num_learner_workers=9", "evaluation_num_workers=9"])
def test_pools_without_room_for_other_workers_are_wrong(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`reef run` and the head refuse them too."""
    more = ["--set", "config.num_rollout_workers=0", "--set", "config.evaluation_interval=1"]
    assert main(["validate", PPO, "--set", POOL, *more, "--set", f"config.{workers}"]) == 2
    assert "9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("algorithm=PPPO", "Did you mean 'PPO'?"),
        ("environment.name=CartPol-v1", "Did you mean 'CartPole-v1'?"),
        ("config.lrr=1", "Did you mean 'lr'?"),
        ("config.lr=[1", "is no value"),
        ("config.lr=fast", "lr='fast'"),
        ("config.use_lstm=true", "use_lstm"),
        (
            "stop.evaluation/episode_reward_mean=9",
            "is never there without evaluations. Set config.evaluation_interval.",
        ),
        ("checkpoint.scoreAttribute=min-evaluation/episode_len_mean", "is never there without evaluations"),
        ("config.exploration_config={type: Nothing}", "exploration_config.type='Nothing' is unknown"),
        (
            "config.exploration_config={type: Random, noise: 1}",
            "exploration_config.noise=1 is not an argument of Random",
        ),
        ("config.model.custom_model=no_such_module:Net", "there is no module 'no_such_module'"),
        ("config.model.free_log_std=true", "model.free_log_std=True needs a Box action space"),
        (
            "config={evaluation_interval: 1, evaluation_config: {env: Pendulum-v1}}",
            "evaluation_config: its environment 'Pendulum-v1' has the space",
        ),
    ],
)
def test_everything_a_document_names_is_checked(change: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", PPO, "--set", change]) == 2
    assert expected in capsys.readouterr().err


AGENTS = "environment={name: 'reef.envs.multi_agent:IndependentAgents', config: {env: CartPole-v1}}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("config={noise_size: 10}", "noise_size=10: the policy has"),
        (AGENTS, "several agents: not available yet with ES"),
    ],
)
def test_what_es_refuses_when_it_runs_is_refused_here(
    change: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ["validate", PPO, "--set", "algorithm=ES", "--set", "config={}"]
    assert main(document) == 0
    assert main([*document, "--set", change]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", [None, *ALGORITHMS])
def test_describe_prints_every_setting(name: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_of(config_class(name) if name else AlgorithmConfig)
    assert main(["describe", *([name] if name else [])]) == 0
    text = capsys.readouterr().out
    assert main(["describe", "--json", *([name] if name else [])]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [info["name"] for info in listed] == [info.name for info in settings]
    for info in settings:
        assert f"\n  {info.name}: {info.type} = " in text
    own = {info.name for info in settings} - config_class(name or "PPO").refusals.keys()
    for key in REFUSALS:
        assert (f"\n  {key} = " in text) == (key not in own)


def test_the_job_reference_has_every_field_and_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "--markdown"]) == 0
    text = capsys.readouterr().out
    for field in ("spec.algorithm", "spec.workers[].gpu.resourceName", "status.training.rewardMean", "lambda_", "lr"):
        assert f"| `{field}` | " in text
    assert "| `spec.algorithm` | string, required | " in text
    assert "| `postprocess_inputs` | `false` | not available yet |" in text


def test_settings_that_one_algorithm_refuses_are_described_with_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "IMPALA"]) == 0
    assert "\n  num_aggregation_workers = 0\n" in capsys.readouterr().out
    assert main(["describe", "PPO"]) == 0
    assert "num_aggregation_workers" not in capsys.readouterr().out
    assert main(["describe", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "### refused settings of APPO" in text and "### refused settings of PPO" not in text
    assert "| `num_aggregation_workers` | `0` | the driver puts the batches together |" in text


def test_describe_refuses_a_name_that_it_would_not_heed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "PPO", "--markdown"]) == 2
    assert "--markdown prints the whole job reference: leave PPO out." in capsys.readouterr().err


def test_describe_refuses_an_unknown_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "PPPO"]) == 2
    assert "Did you mean 'PPO'?" in capsys.readouterr().err


def test_list_names_every_algorithm_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(ALGORITHMS)]] == sorted(ALGORITHMS)
    assert "Proximal policy optimisation" in lines[sorted(ALGORITHMS).index("PPO")]
    assert lines[len(ALGORITHMS)] == ""
    assert lines[len(ALGORITHMS) + 1].startswith("Settings of one: reef describe NAME.")


@pytest.mark.parametrize("form", [*schema.FILES])
def test_the_committed_schema_is_the_generated_one(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", form]) == 0
    generated = capsys.readouterr().out
    for path in schema.FILES[form]:
        assert (ROOT / path).read_text() == generated, "run `make schema`"
    assert len(json.dumps(yaml.safe_load(generated))) < 256 * 1024  # the limit of client-side apply


def test_the_schema_types_the_settings_of_all_algorithms() -> None:
    settings = schema.all_settings()
    for name in ALGORITHMS:
        keys = {info.name.partition(".")[0] for info in settings_of(config_class(name))}
        assert keys <= settings.keys()
    assert settings["gamma"]["type"] == "number"
    refused = {key for key in REFUSALS if "." not in key}
    assert refused <= settings.keys()
    assert settings["metrics_episode_collection_timeout_s"]["description"].startswith("Leave it at 60.0: ")
    assert "model.use_lstm" in KNOWN_SETTINGS["shared"]
    assert all("default" not in setting for setting in settings.values())


def test_make_schema_writes_every_file(tmp_path: Path) -> None:
    schema.write(tmp_path)
    for path in (schema.KNOWN, *(path for paths in schema.FILES.values() for path in paths)):
        assert (tmp_path / path).read_text() == (ROOT / path).read_text()
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert "charts/reef/definitions/rltrainingjobs.reef.dev.yaml" in written
