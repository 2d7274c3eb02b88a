"""The document that a job runs by."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from job_objects import CLAIM, EXTERNAL, FROM_OUTSIDE, INGRESSES, NAME, NOW, head, job, observed, pool

from reef.api import RLTrainingJob
from reef.api.schema import custom_resource_definition
from reef_operator.conditions import Reason
from reef_operator.model import Settings
from reef_operator.names import REFUSAL
from reef_operator.reading.document import IMMUTABLE, Resolved, resolve


def with_kept(edited: dict[str, Any], original: dict[str, Any], **fields: Any) -> Resolved:
    kept = resolve(observed(original)).document
    config_map = {"metadata": {"name": f"{NAME}-job"}, "data": {"job.json": json.dumps(kept)}}
    children = {("ConfigMap", f"{NAME}-job"): config_map} | fields.pop("children", {})
    return resolve(observed(edited, children=children, **fields))


def spec(resolved: Resolved) -> dict[str, Any]:
    assert resolved.document is not None
    return resolved.document["spec"]  # type: ignore[no-any-return]


def test_the_document_names_the_job_and_nothing_of_the_api_servers_own() -> None:
    document = resolve(observed(job(status={"phase": "Pending"}))).document
    assert document and set(document) == {"apiVersion", "kind", "metadata", "spec"}
    assert document["metadata"] == {"name": NAME, "namespace": "training", "uid": "job-uid"}


def test_the_job_that_was_given_is_not_changed() -> None:
    given = job(replicas=5)
    before = json.dumps(given)
    resolve(observed(given))
    assert json.dumps(given) == before


def test_replicas_are_those_of_the_first_pool_and_the_document_keeps_both() -> None:
    """So that a head that begins anew sees that pods were scaled away, and may come again."""
    resolved = resolve(observed(job(replicas=1, workers=[pool(minReplicas=2), pool("gpu", 1)])))
    found = resolved.job.spec
    assert [(each.replicas, each.min_replicas) for each in found.workers] == [(1, 1), (1, None)]
    assert found.replicas is None
    assert [each["replicas"] for each in spec(resolved)["workers"]] == [2, 1] and spec(resolved)["replicas"] == 1


@pytest.mark.parametrize(
    ("given", "image", "policy"),
    [
        ({}, "default:1", "Always"),
        ({"image": "own:2"}, "own:2", None),
        ({"image": "own:2", "imagePullPolicy": "Never"}, "own:2", "Never"),
        ({"imagePullPolicy": "Never"}, "default:1", "Never"),
    ],
)
def test_image(given: dict[str, Any], image: str, policy: str | None) -> None:
    settings = Settings(trainer_image="default:1", image_pull_policy="Always")
    found = spec(resolve(observed(job(**given), settings=settings)))
    assert (found["image"], found.get("imagePullPolicy")) == (image, policy)


def test_workers_keep_the_image_of_the_head_that_runs() -> None:
    running = {("Job", f"{NAME}-head"): {"metadata": {"name": f"{NAME}-head"}}}
    assert spec(with_kept(job(image="b"), job(image="a"), children=running))["image"] == "a"
    assert spec(with_kept(job(image="b"), job(image="a")))["image"] == "b"


EDITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "algorithm": ({"algorithm": "PPO"}, {"algorithm": "DQN"}),
    "environment.name": ({}, {"environment": {"name": "Acrobot-v1"}}),
    "restoreFrom": ({"restoreFrom": "/a"}, {"restoreFrom": None}),
    "checkpoint.storage": ({"checkpoint": None}, {"checkpoint": CLAIM}),
    "externalInput": ({}, {"externalInput": EXTERNAL}),
}


@pytest.mark.parametrize("path", IMMUTABLE)
@pytest.mark.parametrize("back", [False, True])
def test_immutable_fields_keep_their_value(path: str, back: bool) -> None:
    before, after = (job(**fields) for fields in (EDITS[path][::-1] if back else EDITS[path]))
    resolved = with_kept(after, before)
    original = resolve(observed(before)).job
    assert resolved.job and original
    assert resolved.job.spec.algorithm == original.spec.algorithm
    assert resolved.job.spec.environment == original.spec.environment
    assert resolved.job.spec.restore_from == original.spec.restore_from
    assert resolved.job.spec.checkpoint == original.spec.checkpoint
    assert resolved.job.spec.external_input == original.spec.external_input
    assert resolved.accepted.reason is Reason.IMMUTABLE_FIELD
    assert f"spec.{path} cannot be changed from" in resolved.accepted.message


def test_an_ingress_is_refused_where_the_operator_makes_none() -> None:
    resolved = resolve(observed(job(externalInput=FROM_OUTSIDE)))
    assert resolved.document is None and resolved.accepted.reason is Reason.INVALID_DOCUMENT
    for part in (
        "spec.externalInput.ingress.host is 'game.example.com', and this operator makes no Ingresses",
        "ingress.enabled=true in the chart's values",
        "to the Service pole-policy, with the pods of its controller in from",
    ):
        assert part in resolved.accepted.message
    assert resolve(observed(job(externalInput=FROM_OUTSIDE), settings=INGRESSES)).document is not None


def test_a_job_that_has_an_ingress_goes_on_when_no_others_are_allowed() -> None:
    document = resolve(observed(job(externalInput=FROM_OUTSIDE), settings=INGRESSES)).document
    config_map = {"metadata": {"name": f"{NAME}-job"}, "data": {"job.json": json.dumps(document)}}
    later = resolve(observed(job(externalInput=FROM_OUTSIDE), children={("ConfigMap", f"{NAME}-job"): config_map}))
    assert later.accepted.holds and later.document == document


def test_all_edits_are_named_together() -> None:
    message = with_kept(job(algorithm="DQN", restoreFrom="/b"), job()).accepted.message
    assert message == (
        'spec.algorithm cannot be changed from "PPO" to "DQN": the job goes on with "PPO"; set it back, or create '
        'another job; spec.restoreFrom cannot be changed from none to "/b": the job goes on with none; set it back, or '
        "create another job"
    )


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"algorithm": None}, ["spec.algorithm", "missing"]),
        ({"stop": {}}, ["spec.stop"]),
        ({"stop": {"episode_reward_meen": 1}}, ["episode_reward_meen", "episode_reward_mean"]),
        ({"workers": [pool(minReplicas=5)]}, ["minReplicas 5", "replicas 2", "lower it"]),
        ({"workers": [pool("head")]}, ["head", "another name"]),
        ({"workers": [pool(), pool()]}, ["several pools are named cpu"]),
        ({"workers": [pool(gpu={"count": 0})]}, ["gpu.count", "0"]),
        ({"workers": None, "replicas": 2}, ["replicas", "workers has no pool"]),
        ({"checkpoint": {"storage": {}}}, ["exactly one of persistentVolumeClaim and uri"]),
        (
            {"externalInput": {"from": [{"podSelector": {}}]}},
            ["spec.externalInput: tokenSecretRef is missing", "kubectl create secret generic"],
        ),
        ({"backofLimit": 3}, ["backofLimit", "no field"]),
        ({"config": {"lrr": 3}}, ["lrr", "Did you mean 'lr'?"]),
        ({"suspend": "yes"}, ["spec.suspend", "yes"]),
        ({"head": {"resources": {"limits": {"cpu": "lots"}}}}, ["quantity"]),
        ({"workers": [pool("a" * 60)]}, ["at most 57", "shorten"]),
    ],
)
def test_wrong_documents(fields: dict[str, Any], parts: list[str]) -> None:
    resolved = resolve(observed(job(**fields)))
    assert resolved.document is None and resolved.accepted.reason is Reason.INVALID_DOCUMENT
    for part in parts:
        assert part in resolved.accepted.message
    kept = with_kept(job(**fields), job())
    assert kept.job and kept.job.spec.stop == {"timesteps_total": 1000}
    assert "goes on by the document before" in kept.accepted.message
    assert "?." not in kept.accepted.message and ".." not in kept.accepted.message


@pytest.mark.parametrize(
    ("field", "once", "now"),
    [
        ("config", {"newer": 1}, {"newer": 2}),
        ("stop", {"training_iteration": 0}, {"episodes_total": 0}),
        (
            "tune",
            {"parameters": {"lr": {"grid": [0.1]}}, "metric": "newer"},
            {"parameters": {"lr": {"grid": [0.1]}}, "metric": "newest"},
        ),
    ],
)
def test_what_an_older_operator_accepted_does_not_end_a_running_job(field: str, once: Any, now: Any) -> None:
    """Not its own either: the head's image may know more than this operator does."""
    assert resolve(observed(job(**{field: once}))).document is None
    kept = resolve(observed(job())).document
    assert kept is not None
    kept["spec"][field] = once
    children = {("ConfigMap", f"{NAME}-job"): {"metadata": {}, "data": {"job.json": json.dumps(kept)}}}
    same = resolve(observed(job(**{field: once}, suspend=True), children=children))
    assert same.accepted.holds and spec(same)["suspend"] is True
    other = resolve(observed(job(**{field: now}), children=children))
    assert other.accepted.reason == Reason.INVALID_DOCUMENT and spec(other)[field] == once


@pytest.mark.parametrize("nonsense", [None, [], "x", 5])
def test_a_spec_that_is_no_mapping(nonsense: Any) -> None:
    given = job()
    given["spec"] = nonsense
    assert resolve(observed(given)).accepted.reason is Reason.INVALID_DOCUMENT
    assert with_kept(given, job()).job is not None


def test_a_job_with_a_wrong_document_can_still_be_suspended() -> None:
    resolved = with_kept(job(suspend=True, stop={}), job())
    assert resolved.job and resolved.job.spec.suspend and resolved.accepted.reason is Reason.INVALID_DOCUMENT


def test_the_api_server_refuses_the_same_edits_where_it_can() -> None:
    rules = custom_resource_definition({})["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    refused = {rule["message"].split()[0] for rule in rules["x-kubernetes-validations"] if "oldSelf" in rule["rule"]}
    assert refused == {f"spec.{path}" for path in IMMUTABLE}


def test_a_document_beyond_the_limits_is_wrong_and_a_job_that_has_one_already_goes_on_by_it() -> None:
    beyond = {**job(), "spec": {"suspend": True}, REFUSAL: "the document has more than 256 KiB as JSON"}
    refused, edited = resolve(observed(beyond)), with_kept(beyond, job())
    assert refused.document is None and refused.accepted.reason is Reason.INVALID_DOCUMENT
    assert "more than 256 KiB" in refused.accepted.message
    assert spec(edited)["algorithm"] == "PPO" and spec(edited)["suspend"], "it can still be suspended"
    assert "256 KiB" in edited.accepted.message and "goes on by the document before" in edited.accepted.message


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The documents that were validated."""
    found: list[Any] = []
    validate = RLTrainingJob.model_validate
    monkeypatch.setattr(
        RLTrainingJob, "model_validate", lambda given, **how: found.append(given) or validate(given, **how)
    )
    return found


HEAD_JOB = {("Job", f"{NAME}-head"): {"metadata": {"name": f"{NAME}-head"}}}


@pytest.mark.parametrize(
    ("before", "after", "number"),
    [
        ({}, {}, 1),
        ({"image": "own:2"}, {"image": "own:2"}, 1),
        ({"replicas": 5}, {"replicas": 5}, 1),
        ({}, {"suspend": True}, 2),  # the one that is asked for and the former one
        ({}, {"replicas": 5}, 2),
        ({}, {"stop": {}}, 2),
        ({}, {"stop": {}, "suspend": True}, 2),
        ({}, {"algorithm": "DQN"}, 2),  # the one that is asked for and, with the field put back, what becomes of it
        ({"image": "a"}, {"image": "b"}, 2),
        ({}, {"algorithm": "DQN", "suspend": True}, 3),
    ],
)
def test_each_document_is_validated_once(
    validated: list[Any], before: dict[str, Any], after: dict[str, Any], number: int
) -> None:
    kept = resolve(observed(job(**before))).document
    assert len(validated) == 1, "that of a new job"
    config_map = {"metadata": {}, "data": {"job.json": json.dumps(kept)}}
    children = {("ConfigMap", f"{NAME}-job"): config_map} | HEAD_JOB
    validated.clear()
    resolve(observed(job(**after), children=children))
    assert len(validated) == number


def test_a_document_is_resolved_again_only_if_it_is_made_from_something_else(validated: list[Any]) -> None:
    first = resolve(observed(job()))
    validated.clear()
    assert resolve(observed(job(status={"phase": "Pending"}), now=NOW + timedelta(days=1)), first) is first
    assert not validated
    for other in (
        observed(job(suspend=True)),
        observed(job() | {REFUSAL: "too large"}),
        observed(job(), children=HEAD_JOB),
        observed(job(), head()),
        observed(job(), settings=Settings(trainer_image="other:1")),
        observed(job() | {"metadata": job()["metadata"] | {"uid": "another"}}),
    ):
        assert resolve(other, first) is not first


def test_what_the_config_map_holds_is_trusted_as_far_as_it_is_valid() -> None:
    """Someone may have edited it."""
    kept = resolve(observed(job())).document
    assert kept is not None
    for damage in (
        {"algorithm": 42},
        {"checkpoint": 5},
        {"image": 5},
        {"imagePullSecrets": "s"},
        {"environment": None},
    ):
        damaged = kept | {"spec": kept["spec"] | damage}
        children = {
            ("ConfigMap", f"{NAME}-job"): {"metadata": {}, "data": {"job.json": json.dumps(damaged)}}
        } | HEAD_JOB
        resolved = resolve(observed(job(), children=children))
        assert resolved.accepted.holds and resolved.document == kept
