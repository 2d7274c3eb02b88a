"""Which processes fit into a job's pods."""

from __future__ import annotations

from typing import Any

import pytest

from reef.api import job_from_document
from reef.distributed.node_settings import WORKERS_LABEL
from reef.errors import EXIT_WRONG_USE, ResourceError
from reef.job.capacity import pods_of, rollout_workers_that_fit
from reef.job.settings import cluster_config_of

CPU = {"name": "cpu", "replicas": 2, "resources": {"requests": {"cpu": "1500m"}}}
GPU = {"name": "gpu", "replicas": 1, "rolloutWorkers": 0, "gpu": {"count": 2}}


def fitting(document: Any, workers: list[dict[str, Any]], head_cpus: float = 0.0, **config: Any) -> int:
    job = job_from_document(document(workers=workers, config=config))
    return rollout_workers_that_fit(cluster_config_of(job), pods_of(job.spec, head_cpus, 0))


def test_pods_offer_whole_cpus_and_their_pool(document: Any) -> None:
    spec = job_from_document(document(workers=[CPU, GPU])).spec
    assert pods_of(spec, 3, 0) == [
        {"CPU": 2.0, "GPU": 0.0, "pool:cpu": 1.0, WORKERS_LABEL: 1.0},
        {"CPU": 2.0, "GPU": 0.0, "pool:cpu": 1.0, WORKERS_LABEL: 1.0},
        {"CPU": 1.0, "GPU": 2.0, "pool:gpu": 1.0, WORKERS_LABEL: 1.0},
        {"CPU": 3, "GPU": 0, "pool:head": 1.0},
    ]


def test_workers_are_in_the_head_only_where_training_goes_on_without_pods(document: Any) -> None:
    for workers, expected in (
        ([CPU], 4),
        ([CPU | {"minReplicas": 0}], 9),
        ([CPU | {"replicas": 0}], 6),
        ([CPU | {"rolloutWorkers": 0}], 9),
        ([], 6),
    ):
        assert fitting(document, workers, head_cpus=6.0, num_rollout_workers=9) == expected
    assert fitting(document, [CPU], head_cpus=6.0, num_rollout_workers=9, recreate_failed_workers=False) == 9


def test_what_fits_counts_also_where_more_was_asked_for(document: Any) -> None:
    assert fitting(document, [CPU]) == 2
    assert fitting(document, [CPU], num_rollout_workers=9) == 4
    assert fitting(document, [CPU], num_rollout_workers=9, num_cpus_per_worker=1.5) == 2  # one in each pod
    assert fitting(document, [CPU], num_rollout_workers=9, num_cpus_per_worker=0) == 9
    assert fitting(document, [CPU], num_rollout_workers=9, custom_resources_per_worker={"pool:cpu": 0.5}) == 4
    assert fitting(document, []) == 0


def test_evaluation_workers_and_learners_come_first(document: Any) -> None:
    assert fitting(document, [CPU], num_rollout_workers=4, evaluation_num_workers=1) == 3
    assert fitting(document, [CPU, GPU], num_learner_workers=2, num_gpus_per_learner_worker=1, num_rollout_workers=4,
                   num_cpus_per_learner_worker=0.5) == 4  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_cpus_per_worker": 3}, "num_rollout_workers=2: the pods of spec.workers have room for 0 of them"),
        ({"num_learner_workers": 2, "num_gpus_per_learner_worker": 1}, "num_gpus_per_learner_worker 1"),
        ({"evaluation_num_workers": 9}, "evaluation_num_workers=9: the pods of spec.workers have room for 4"),
    ],
)
def test_what_never_fits_is_a_wrong_job(document: Any, config: dict[str, Any], expected: str) -> None:
    with pytest.raises(ResourceError, match=expected) as caught:
        fitting(document, [CPU], **config)
    assert caught.value.exit_code == EXIT_WRONG_USE
