"""Reading job documents: what is accepted, and one message for everything that is wrong.

It tests reef.api.storage too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from reef.api import RLTrainingJob, job_from_document, load_job
from reef.api.loading import parse_value, parse_yaml
from reef.errors import ConfigError, without_secrets

EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
    if "kind: RLTrainingJob" in path.read_text()
]


def document(**spec: Any) -> dict[str, Any]:
    """A valid document with some fields of its spec replaced; None removes one."""
    base = {"algorithm": "PPO", "environment": {"name": "CartPole-v1"}, "stop": {"training_iteration": 1}}
    spec = {key: value for key, value in {**base, **spec}.items() if value is not None}
    return {"apiVersion": "reef.dev/v1", "kind": "RLTrainingJob", "metadata": {"name": "job"}, "spec": spec}


GRID = {"grid": [1]}


def problems(wrong: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        job_from_document(wrong, "job.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid(path: Path) -> None:
    assert isinstance(load_job(path), RLTrainingJob)


def test_a_text_and_a_file_give_the_same_job(tmp_path: Path) -> None:
    text = yaml.safe_dump(document())
    (tmp_path / "job.yaml").write_text(text)
    assert load_job(text) == load_job(tmp_path / "job.yaml") == load_job(str(tmp_path / "job.yaml"))


def test_a_live_object_is_read_with_its_metadata_and_status() -> None:
    live = document() | {"status": {"phase": "Running", "fieldOfANewerOperator": 1}}
    live["metadata"] |= {"uid": "1-2", "generation": 3, "managedFields": []}
    job = job_from_document(live)
    assert job.status is not None
    assert job.status.phase == "Running"
    assert job.metadata.model_extra == {"uid": "1-2", "generation": 3, "managedFields": []}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"algoritm": "PPO"}, "spec.algoritm: is no field. Did you mean 'algorithm'?"),
        ({"restore_from": "x"}, "spec.restore_from: is no field. Did you mean 'restoreFrom'?"),
        ({"stop": None}, "spec.stop: is missing"),
        ({"stop": {}}, "spec.stop: "),
        ({"stop": {"episode_reward_men": 1}}, "Did you mean 'episode_reward_mean'?"),
        ({"stop": {"training_iteration": True}}, "spec.stop.training_iteration: should be a valid number, not True"),
        ({"stop": {"training_iteration": float("nan")}}, "spec.stop.training_iteration: should be a finite number"),
        ({"stop": {"timesteps_total": -5}}, "spec.stop: key 'timesteps_total' is -5, which is reached before"),
        ({"environment": "CartPole-v1"}, "spec.environment: should be a mapping, not 'CartPole-v1'. Fields here"),
        ({"tune": {"parameters": {"lr": [0.1]}}}, "parameters.lr: should be a mapping, not [0.1]. Fields here"),
        ({"suspend": "yes"}, "spec.suspend: should be a valid boolean, not 'yes'"),
        ({"workers": [{"name": "a", "replicas": "2"}]}, "spec.workers[0].replicas: should be a valid integer, not '2'"),
        ({"workers": [{"name": "a", "replicas": -1}]}, "spec.workers[0].replicas: should be greater than"),
        ({"workers": [{"name": "A_b"}]}, "spec.workers[0].name: 'A_b' does not fit, expected lower-case letters"),
        ({"workers": [{"name": "a"}, {"name": "a"}]}, "spec.workers: several pools are named a"),
        ({"workers": [{"name": "head"}]}, "spec.workers[0]: name 'head' belongs to the head pod"),
        ({"workers": [{"name": "a", "minReplicas": 2}]}, "minReplicas 2 is larger than replicas 1"),
        ({"workers": [{"name": "a", "gpu": {"count": 0}}]}, "spec.workers[0].gpu.count: "),
        ({"workers": [{"name": "a", "gpu": {"cout": 1}}]}, "gpu.cout: is no field. Did you mean 'count'"),
        ({"head": {"resources": {"requests": {"cpu": 0.5}}}}, "spec.head.resources.requests.cpu: 0.5 is no K"),
        ({"head": {"resources": {"limits": {"memory": "4 GB"}}}}, "limits.memory: '4 GB' is no Kubernetes q"),
        ({"head": {"resources": {"limits": {"memory": [0] * 99}}}}, "limits.memory: list is no Kubernetes q"),
        (
            {"head": {"gpu": {"count": 1}, "resources": {"limits": {"nvidia.com/gpu": 1}}}},
            "nvidia.com/gpu is in gpu, 1, and in resources, 1: remove it from resources",
        ),
        (
            {
                "head": {
                    "gpu": {"count": 1},
                    "template": {
                        "spec": {"containers": [{"name": "reef", "resources": {"limits": {"nvidia.com/gpu": 2}}}]}
                    },
                }
            },
            "nvidia.com/gpu is in gpu, 1, and in the template's container reef, 2: remove it from one of them",
        ),
        ({"replicas": 3}, "replicas 3 sets the first pool's pods, but workers has no pool: add one or remove replicas"),
        ({"checkpoint": {"storage": {}}}, "uri: there is neither, add one or remove storage"),
        (
            {"checkpoint": {"storage": {"uri": "s3://a/b", "persistentVolumeClaim": {"claimName": "c"}}}},
            "spec.checkpoint.storage: give exactly one of persistentVolumeClaim and uri: there are 'c' and 's3://a/b', "
            "remove one of them",
        ),
        ({"checkpoint": {"storage": {"uri": "bucket/folder"}}}, "an object store and a folder in it"),
        (
            {"checkpoint": {"storage": {"persistentVolumeClaim": {"claimName": "c"}, "secretRef": {"name": "s"}}}},
            "secretRef 's' belongs to uri: a persistentVolumeClaim needs no credentials, remove secretRef",
        ),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds: should be greater than or equal to 1"),
        ({"faultTolerance": {"noRetryExitCodes": [0]}}, "spec.faultTolerance.noRetryExitCodes[0]: "),
        ({"tune": {"parameters": {}}}, "spec.tune.parameters: "),
        ({"tune": {"parameters": {"lr": {"grid": [1], "choice": [1]}}}}, "there are grid, choice, remove all but one"),
        ({"tune": {"parameters": {"lr": {"grid": None}}}}, "there is none, add one"),
        ({"tune": {"parameters": {"lr": {}}}}, "logUniform: there is none, add one"),
        ({"tune": {"parameters": {"lr": {"uniform": [2, 1]}}}}, "the first number must be the smaller"),
        ({"tune": {"parameters": {"lr": {"logUniform": [0, 1]}}}}, "needs numbers above 0"),
        (
            {"tune": {"parameters": {"lr": {"grid": [1]}}, "scheduler": {"gracePeriod": 2}}},
            "spec.tune.scheduler: kind fifo does not read gracePeriod, but no other field: leave out the others",
        ),
        (
            {"tune": {"parameters": {"lr": {"grid": [1]}}, "scheduler": {"kind": "asha", "brackets": 2}}},
            "kind asha does not read brackets, but gracePeriod, reductionFactor: leave out the others",
        ),
        (
            {"checkpoint": {"frequency": 3}, "tune": {"parameters": {"lr": GRID}, "scheduler": {"kind": "pbt"}}},
            "checkpoint.frequency is 3: set it to 10 or a divisor of it",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_path(spec: dict[str, Any], expected: str) -> None:
    assert expected in problems(document(**spec))


def test_all_problems_come_in_one_message() -> None:
    message = problems(document(algorithm=7, suspend="no", imag="x"))
    assert message.startswith("job.yaml: 3 problems\n")
    assert message.count("\n  - spec.") == 3


def test_a_name_that_leaves_no_room_for_the_pods_is_refused_with_the_arithmetic() -> None:
    wrong = document(workers=[{"name": "a-long-pool-name"}])
    wrong["metadata"]["name"] = "j" * 45
    many = {str(number): number for number in range(1001)}
    assert "spec.config: has 1001 entries, at most 1000 fit" in problems(document(config=many))
    assert "metadata.name: has 64 characters, at most 63 fit" in problems(document() | {"metadata": {"name": "j" * 64}})
    assert "has 62 characters, at most 57 fit: shorten the job's name or the pool's by 5" in problems(wrong)
    wrong["metadata"]["name"] = "j" * 40
    assert job_from_document(wrong).metadata.name == "j" * 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\n", "is no valid YAML"),
        ("a: {{ .Values.x }}\n", "a key is a mapping or a list. Text that begins with { or [ needs quotes (line 1)"),
        ("a: 1\n? [1, 2]\n: 3\n", "a key is a mapping or a list. Text that begins with { or [ needs quotes (line 2)"),
        ("a: !!bool x\n", "is no valid YAML"),
        ("a: !!map [1]\n", "is no valid YAML"),
        ("a: 1\na: 2\n", "key 'a' is given twice (line 2)"),
        ("b: &b {c: 1}\na: {<<: *b, d: 1, d: 2}\n", "key 'd' is given twice (line 2)"),
        ("- 1\n- 2\n", "holds a list, expected a mapping"),
        (f"a: 0x{'f' * 5000}\n", "a number has 5002 digits (line 1)"),
        ("a: 1\n---\nb: 2\n", "holds several documents, expected one RLTrainingJob"),
        ("\n\n", "holds no documents"),
        ("a: !!python/object/apply:os.getcwd []\n", "is no valid YAML"),
        ("apiVersion: batch/v1\nkind: Job\n", "expected apiVersion 'reef.dev/v1' and kind 'RLTrainingJob'"),
        ("cart: {run: PPO, env: CartPole-v1}\n", "'cart' is an experiment of RLlib: make it a job, with its `run` as"),
    ],
)
def test_a_foreign_text_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=r"^the text: ") as caught:
        load_job(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00a"])
def test_an_unreadable_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_job(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_job(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1E5", 1e5), ("3", 3), ("true", True), ("[32, 32]", [32, 32]), ("", None), ("a1e4b", "a1e4b")],
)
def test_values_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_yaml_merge_keys_are_no_duplicates() -> None:
    assert parse_yaml("base: &b {x: 1}\nmore: {<<: *b, y: 2}\n", "t")["more"] == {"x": 1, "y": 2}


def test_messages_can_speak_of_flags_instead_of_paths() -> None:
    with pytest.raises(ConfigError) as caught:
        job_from_document(document(stop={"x": "y"}), "the command line", {"spec.stop": "--stop"})
    assert "  - --stop.x: " in str(caught.value)


def test_what_is_merged_may_be_given_again_at_any_depth() -> None:
    text = "x: {a: &a {<<: &base {lr: 1, g: 2}, lr: 2}}\nb: {<<: *a, g: 3}\n"
    assert parse_yaml(text, "x")["b"] == {"lr": 2, "g": 3}


def test_what_may_be_a_password_in_a_uri_is_not_shown() -> None:
    said = problems(document(checkpoint={"storage": {"uri": "s3://KEY:SECRET@bucket/x?sig=TOKEN"}}))
    assert "'s3://...@bucket/x' does not fit" in said


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://key:pass@bucket/x?sig=TOKEN", "s3://...@bucket/x"),
        ("s3://key:pa?ss@bucket/x", "s3://..."),
        ("s3://bucket/x?access_key=AK&secret_key=ab@cdSECRET", "s3://..."),
        ("s3:/key:secret@bucket", "s3:/...@bucket"),
        ("u:secret@bucket", "u:...@bucket"),
        ("s3://k:s@e@bucket\nx", "s3://...@bucket\nx"),
        ("s3://bucket/x?sig=TOKEN", "s3://bucket/x"),
    ],
)
def test_a_wrong_uri_is_shown_without_what_may_be_secret(uri: str, shown: str) -> None:
    assert without_secrets(uri) == shown
