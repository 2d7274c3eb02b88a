"""Which processes fit into a job's pods."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document
from reef.config import AlgorithmConfig
from reef.distributed.node_settings import WORKERS_LABEL
from reef.errors import EXIT_WRONG_USE, ResourceError
from reef.job.capacity import Pods, fewest_to_go_on
from reef.job.settings import cluster_config_of

CPU = {"name": "cpu", "replicas": 2, "resources": {"requests": {"cpu": "1500m"}}}
GPU = {"name": "gpu", "replicas": 1, "rolloutWorkers": 0, "gpu": {"count": 2}}
ONE = {"name": "one", "replicas": 1}


def pods(document: Any, workers: list[dict[str, Any]], head_cpus: float, **config: Any) -> tuple[Pods, AlgorithmConfig]:
    job = job_from_document(document(workers=workers, config={"evaluation_interval": 1} | config))
    return Pods(job.spec, head_cpus, 0), cluster_config_of(job)


def fitting(document: Any, workers: list[dict[str, Any]], head_cpus: float = 0.0, **config: Any) -> int:
    found, settings = pods(document, workers, head_cpus, **config)
    return found.rollout_workers_that_fit(settings)


def test_pods_offer_whole_cpus_and_their_pool(document: Any) -> None:
    found, _ = pods(document, [CPU, GPU], 3)
    assert found.offers() == [
        {"CPU": 2.0, "GPU": 0.0, "pool:cpu": 1.0, WORKERS_LABEL: 1.0},
        {"CPU": 2.0, "GPU": 0.0, "pool:cpu": 1.0, WORKERS_LABEL: 1.0},
        {"CPU": 1.0, "GPU": 2.0, "pool:gpu": 1.0},  # only for learners
        {"CPU": 3, "GPU": 0, "pool:head": 1.0},
    ]
    assert len(found.offers(fewest_to_go_on)) == 3
    assert found.offers(in_head=True)[-1] == {"CPU": 3, "GPU": 0, "pool:head": 1.0, WORKERS_LABEL: 1.0}
    assert (found.total("CPU"), found.total("GPU")) == (8, 2)


def test_what_fits_counts_also_where_more_was_asked_for(document: Any) -> None:
    assert fitting(document, [CPU]) == 2
    assert fitting(document, [CPU], num_rollout_workers=9) == 4
    assert fitting(document, [CPU], num_rollout_workers=9, num_cpus_per_worker=1.5) == 2  # one in each pod
    assert fitting(document, [CPU], num_rollout_workers=9, num_cpus_per_worker=0) == 9
    assert fitting(document, [CPU], num_rollout_workers=9, custom_resources_per_worker={"pool:cpu": 0.5}) == 4
    assert fitting(document, []) == 0


@pytest.mark.parametrize(
    ("workers", "config", "is_in_head", "expected"),
    [
        ([CPU], {}, False, 4),
        ([CPU], {"recreate_failed_workers": False}, True, 9),  # they wait for no pod: room is reserved anywhere
        ([CPU | {"minReplicas": 0}], {}, True, 9),
        ([CPU | {"minReplicas": 0}], {"num_cpus_per_worker": 0}, True, 9),
        ([CPU | {"replicas": 0}], {}, True, 6),
        ([], {}, True, 6),
        ([CPU | {"rolloutWorkers": 0}], {}, True, 6),
        # the fewest pods have no room for all without which training stands still
        ([ONE], {"evaluation_num_workers": 1}, True, 6),
        ([ONE], {"num_learner_workers": 1}, True, 6),
        ([ONE | {"replicas": 8}], {"evaluation_num_workers": 1}, True, 9),
        ([ONE | {"replicas": 8, "minReplicas": 2}], {"evaluation_num_workers": 1}, False, 7),
        ([ONE | {"replicas": 8, "minReplicas": 2}], {"evaluation_num_workers": 2}, False, 6),  # one plays on
        # all pods have no room for all evaluation workers beside a rollout worker, though the fewest go on
        ([ONE | {"replicas": 2, "minReplicas": 2}], {"evaluation_num_workers": 2}, True, 6),
        ([ONE], {"evaluation_num_workers": 1, "evaluation_config": {"num_cpus_per_worker": 0}}, False, 1),
    ],
)
def test_workers_are_in_the_head_only_where_training_would_stand_still(
    document: Any, workers: list[dict[str, Any]], config: dict[str, Any], is_in_head: bool, expected: int
) -> None:
    found, settings = pods(document, workers, 6.0, num_rollout_workers=9, **config)
    assert found.head_takes_workers(settings) is is_in_head
    assert found.rollout_workers_that_fit(settings) == expected


def test_a_head_that_has_no_room_for_them_takes_none(document: Any) -> None:
    found, settings = pods(document, [CPU | {"replicas": 8}], 1.0, num_cpus_per_worker=2, evaluation_num_workers=1)
    assert not found.head_takes_workers(settings), "training pauses with one pod in any case"
    assert found.rollout_workers_that_fit(settings) == 7


def test_rollout_workers_are_not_in_pods_for_learners(document: Any) -> None:
    asked = {"num_learner_workers": 2, "num_gpus_per_learner_worker": 1, "num_cpus_per_learner_worker": 0.5}
    assert fitting(document, [CPU, GPU | {"resources": {"requests": {"cpu": 8}}}], num_rollout_workers=9, **asked) == 4


@pytest.mark.parametrize("first", [0, 1])
def test_learners_leave_the_pods_that_take_workers_to_those(document: Any, first: int) -> None:
    pools = [CPU | {"replicas": 1}, {"name": "learners", "rolloutWorkers": 0, "resources": {"requests": {"cpu": 2}}}]
    asked = {"num_learner_workers": 2, "num_rollout_workers": 1, "num_cpus_per_worker": 2}
    assert fitting(document, [pools[first], pools[1 - first]], **asked) == 1


def test_a_job_that_was_scaled_down_is_not_wrong_when_its_head_begins_anew(document: Any) -> None:
    """It waits for more pods, or goes on with these."""

    def scaled(replicas: int, **config: Any) -> int:
        job = job_from_document(document(workers=[CPU | {"replicas": 8}], replicas=replicas, config=config))
        return Pods(job.spec, 1.0, 0).rollout_workers_that_fit(cluster_config_of(job))

    for_long = {"num_rollout_workers": 5, "evaluation_interval": 1, "evaluation_num_workers": 3}
    assert [scaled(replicas, **for_long) for replicas in (8, 3, 2, 1)] == [5, 3, 1, 0]
    assert scaled(0, num_cpus_per_worker=2, num_rollout_workers=5) == 0
    with pytest.raises(ResourceError, match="room for 0 of them"):
        scaled(0, num_cpus_per_worker=3, num_rollout_workers=5)


def test_on_one_machine_the_head_s_room_counts_too(document: Any) -> None:
    found, settings = pods(document, [CPU], 1.0, num_rollout_workers=9)
    assert found.rollout_workers_that_fit(settings) == 4
    assert found.rollout_workers_that_fit(settings, on_one_machine=True) == 5


def test_evaluation_workers_and_learners_come_first(document: Any) -> None:
    assert fitting(document, [CPU], num_rollout_workers=4, evaluation_num_workers=1) == 3
    never = {"evaluation_interval": None, "evaluation_num_workers": 9}
    assert fitting(document, [CPU], num_rollout_workers=4, **never) == 4, "none of them is started"
    assert fitting(document, [CPU, GPU], num_learner_workers=2, num_gpus_per_learner_worker=1, num_rollout_workers=4,
                   num_cpus_per_learner_worker=0.5) == 4  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_cpus_per_worker": 3}, "num_rollout_workers=2: the job's pods have room for 0 of them"),
        ({"num_learner_workers": 2, "num_gpus_per_learner_worker": 1}, "num_gpus_per_learner_worker 1"),
        ({"evaluation_num_workers": 9}, "evaluation_num_workers=9: the job's pods have room for 4"),
    ],
)
def test_what_never_fits_is_a_wrong_job(document: Any, config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ResourceError, match=expected) as caught:
        fitting(document, [CPU], **config)
    assert caught.value.exit_code == EXIT_WRONG_USE
