"""Names and labels fit what Kubernetes allows."""

from __future__ import annotations

import re

from job_objects import job

from reef.api import job_from_document
from reef_operator import names

LONGEST = "j" * 52


def test_children_of_the_longest_name() -> None:
    for name in (names.document, names.token, names.head, names.network_policy):
        assert len(name(LONGEST)) <= 63
    assert len(names.head(LONGEST)) == 57, "a batch Job's pods take six more"


def test_pools_of_different_jobs_never_meet() -> None:
    parts = ("a", "b", "c", "a-b", "b-c", "a-b-c", "a--b", "b--c", "head")
    made = [names.pool(job, pool) for job in parts for pool in parts]
    assert len(set(made)) == len(made)
    assert names.pool("pole", "cpu") == "pole-cpu", "the plain name is kept where it is unambiguous"
    assert len(names.pool("j" * 28, "p" * 27 + "-")) <= 63


def test_labels_can_be_selected_by() -> None:
    for labels in (names.head_labels(LONGEST), names.worker_labels(LONGEST, "p")):
        for key, value in labels.items():
            assert len(value) <= 63 and re.fullmatch(r"[a-z0-9.]+/[a-z-]+", key)
    assert names.selector({"b": "2", "a": "1"}) == "a=1,b=2"
    for term in names.MANAGED_SELECTOR.split(","):
        assert term in names.selector(names.head_labels("pole"))


def test_hashes_are_those_of_every_operator_before_or_running_pods_would_be_replaced() -> None:
    head = {"resources": {"limits": {"cpu": "2"}}}
    spec = job_from_document(job(image="own:2", imagePullSecrets=["s"], head=head)).spec
    assert names.pool_hash(spec, spec.workers[0]) == "c7cb00de35fd232a"
    assert names.head_hash(spec) == "d2ae605309be4f91"
