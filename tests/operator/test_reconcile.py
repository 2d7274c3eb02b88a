"""A job's life, step by step: what is done, what is said, and that nothing is done twice.

It tests reef_operator.cleanup and reef_operator.status too.
"""

from __future__ import annotations

import json
import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_objects import (
    CLAIM,
    EXTERNAL,
    FROM_OUTSIDE,
    INGRESSES,
    NAME,
    World,
    at,
    ended,
    gated,
    head,
    job,
    outlived,
    pool,
    ready,
    result,
    running_world,
    unschedulable,
    waiting,
    worker,
)

from reef.api import job_from_document
from reef_operator.conditions import ConditionType, Reason
from reef_operator.model import Create, Delete, Freshness, Patch, Server, Settings
from reef_operator.reading.situation import Situation
from reef_operator.reconcile import reconcile
from reef_operator.runtime.watch import trim_pod

CHECKPOINT = {"path": "/results/checkpoint_000009", "iteration": 9, "time": "2026-01-01T12:00:00Z"}
HEAD_OBJECTS = [
    "ConfigMap/pole-job",
    "Job/pole-head",
    "NetworkPolicy/pole",
    "Secret/pole-ray-token",
    "Service/pole-head",
]


def new_world(**spec: Any) -> World:
    world = World(job(**spec))
    world.settle()
    return world


def test_the_head_gets_its_objects_first_and_the_workers_once_it_has_a_node() -> None:
    world = new_world()
    assert world.kinds() == HEAD_OBJECTS and world.phase == "Pending"
    world.put(head(node="", **unschedulable()))
    assert world.kinds() == HEAD_OBJECTS and world.phase == "Pending"
    world.put(head(**waiting("ContainerCreating")))
    assert world.kinds() == sorted([*HEAD_OBJECTS, "Deployment/pole-cpu"]) and world.phase == "Provisioning"


def test_applications_get_a_service_of_their_own_which_is_made_again() -> None:
    world = new_world(externalInput=EXTERNAL)
    assert world.kinds() == [*HEAD_OBJECTS, "Service/pole-policy"]
    del world.children["Service", "pole-policy"]
    world.settle()
    assert "Service/pole-policy" in world.kinds()


def test_applications_outside_of_the_cluster_get_an_ingress_which_is_made_again() -> None:
    world = World(job(externalInput=FROM_OUTSIDE), settings=INGRESSES)
    world.settle()
    assert world.kinds() == sorted([*HEAD_OBJECTS, "Ingress/pole-policy", "Service/pole-policy"])
    del world.children["Ingress", "pole-policy"]
    world.settle()
    assert "Ingress/pole-policy" in world.kinds()


def test_a_job_keeps_its_ingress_when_no_others_are_allowed() -> None:
    world = World(job(externalInput=FROM_OUTSIDE), settings=INGRESSES)
    world.settle()
    world.settings = Settings()
    world.settle()
    assert world.phase == "Pending" and "Ingress/pole-policy" in world.kinds()
    new = new_world(externalInput=FROM_OUTSIDE)
    assert new.phase == "Invalid" and new.kinds() == []


def test_a_head_behind_scheduling_gates_names_them_and_waits_no_longer_than_it_may() -> None:
    world = new_world(preRunningDeadlineSeconds=600)
    world.put(trim_pod(gated("kueue.x-k8s.io/admission", "example.com/quota")))
    condition = world.condition("HeadReady")
    assert (world.phase, condition["reason"], world.told) == ("Pending", "SchedulingGated", [])
    for text in (condition["message"], world.status["message"]):
        assert "removes them: kueue.x-k8s.io/admission, example.com/quota" in text
    world.after(600)
    assert world.phase == "Failed" and "kueue.x-k8s.io/admission" in world.status["message"]


def test_a_head_that_does_not_start_is_looked_at_again_after_a_minute_and_then_not_for_that() -> None:
    world = new_world()
    plan = world.put(head(**waiting("ContainerCreating")))
    assert plan.requeue_after_s == 60 and "more than a minute" not in world.status["message"]
    plan = world.after(60)
    assert plan.requeue_after_s is None and "for more than a minute" in world.status["message"]
    written = world.status
    world.after(1000)
    assert world.status == written


def test_where_no_head_pod_is_made_a_person_is_told_where_to_look() -> None:
    world = World(job())
    assert world.settle().requeue_after_s == 60 and world.status["message"] == "there is no head pod yet"
    assert world.after(60).requeue_after_s == 60
    assert "`kubectl describe job pole-head -n" in world.status["message"]
    world.put(head(node=""))
    assert "describe" not in world.status["message"]


def test_a_head_pod_that_goes_is_not_missed_for_a_minute_at_once() -> None:
    world = running_world()
    world.after(3600)
    assert world.lose("pole-head-a").requeue_after_s == 60 and "describe" not in world.status["message"]
    assert world.after(60).requeue_after_s == 60, "then the workers go"
    assert "there is no head pod yet: the Events of `kubectl describe job" in world.status["message"]


def test_pods_are_created_after_what_they_read() -> None:
    plan = reconcile(Situation(World(job()).observe()))
    kinds = [action.kind for action in plan.actions if isinstance(action, Create)]
    assert kinds[-1] == "Job" and set(kinds[:-1]) == {"ConfigMap", "Secret", "Service", "NetworkPolicy"}


def test_a_job_runs_when_its_head_trains() -> None:
    world = new_world()
    world.put(head(**ready()))
    assert world.phase == "Provisioning"
    world.says("pole-head-a", "waiting", message="0 of 1 workers have joined")
    assert world.phase == "Provisioning" and "0 of 1 workers have joined" in world.status["message"]
    world.says("pole-head-a", "training", training={"iteration": 1, "timesteps": 100})
    assert world.phase == "Running" and world.status["training"]["timesteps"] == 100
    assert world.condition("Running")["status"] == "True"
    assert world.status["runningTime"] == world.status["activeSince"]


@pytest.mark.parametrize(
    ("state", "said", "shown"),
    [
        ("training", "", "training with 2 of 2 workers"),
        ("waiting", "training pauses, pool cpu: 1 of 3 pods", "training pauses, pool cpu: 1 of 3 pods"),
        ("waiting", "", "training with 2 of 2 workers"),
    ],
)
def test_a_pause_in_training_is_told_in_the_heads_words(state: str, said: str, shown: str) -> None:
    world = running_world()
    world.says("pole-head-a", state, message=said, training={"iteration": 1, "timesteps": 100})
    condition = world.condition("Running")
    assert (world.phase, world.status["message"]) == ("Running", shown)
    assert (condition["status"], condition["message"]) == ("True", shown)
    assert world.told.count("Running") == 1, "a pause is no other phase"


def test_a_sweep_tells_its_best_trial_and_its_counts() -> None:
    world = new_world()
    assert "bestTrial" not in world.status and "trials" not in world.status
    world.put(head(**ready()))
    best = {"name": "trial_0002", "config": {"lr": 0.1}, "metric": 21.5, "iteration": 3, "checkpoint": "/c"}
    world.says("pole-head-a", "training", bestTrial=best, trials={"total": 3, "running": 2, "finished": 1})
    assert world.status["bestTrial"] == best
    assert world.status["trials"] == {"total": 3, "running": 2, "finished": 1, "failed": 0}
    last = best | {"name": "trial_0003", "metric": 30.0}
    world.put(head(**ended(0, result(bestTrial=last, trials={"total": 3, "finished": 3}))))
    assert (world.phase, world.status["bestTrial"]) == ("Succeeded", last)
    assert world.status["trials"] == {"total": 3, "running": 0, "finished": 3, "failed": 0}


def test_what_another_pod_said_does_not_count() -> None:
    world = new_world()
    world.put(head(**ready()))
    world.says("pole-head-before", "training", training={"iteration": 9, "timesteps": 900})
    assert world.phase == "Provisioning" and "training" not in world.status


def test_a_head_that_cannot_be_asked_counts_as_training_after_a_minute() -> None:
    world = new_world()
    plan = world.put(head(**ready()))
    assert world.phase == "Provisioning" and plan.requeue_after_s == 60
    world.after(60)
    assert world.phase == "Running"


def test_an_operator_that_starts_again_gives_a_head_a_minute_to_answer() -> None:
    world = new_world()
    world.put(head(**ready()))
    world.says("pole-head-a", "waiting", message="0 of 2 workers have joined")
    world.now += timedelta(hours=1)
    world.report = world.asked_since = None
    assert world.settle().requeue_after_s is None and world.phase == "Provisioning"
    world.asked_since = world.now
    assert world.settle().requeue_after_s == 60 and world.phase == "Provisioning"
    world.after(60)
    assert world.phase == "Running"


@pytest.mark.parametrize("state", ["starting", "waiting"])
def test_a_head_that_says_it_has_not_begun_does_not_run_by_its_silence(state: str) -> None:
    world = new_world()
    world.put(head(**ready()))
    world.after(60)
    assert world.phase == "Running"
    world.says("pole-head-a", state)
    assert world.phase == "Provisioning" and "activeSince" not in world.status
    world.says("pole-head-a", "training", training={"iteration": 1, "timesteps": 100})
    world.says("pole-head-a", "waiting", training={"iteration": 1, "timesteps": 100})
    assert world.phase == "Running", "it pauses"


def test_running_stays_while_the_operator_has_forgotten_what_the_head_said() -> None:
    world = running_world()
    world.report = None
    world.settle()
    assert world.phase == "Running" and world.status["training"]["timesteps"] == 100


def test_a_head_whose_side_car_goes_on_is_removed_and_retried_as_often_as_any() -> None:
    world = running_world(faultTolerance={"backoffLimit": 1})
    world.put(head(**outlived(1, result("no space left on device"))))
    assert world.phase == "Retrying" and "deletionTimestamp" in world.pods["pole-head-a"]["metadata"]
    assert world.status["attempts"] == 1
    world.lose("pole-head-a")
    world.now += timedelta(minutes=1)
    world.put(head("pole-head-b", created=60, **ready(60)))
    world.says("pole-head-b", "training")
    assert (world.phase, world.status["attempts"]) == ("Running", 2)
    world.put(head("pole-head-b", created=60, **outlived(1, result("no space left on device"))))
    assert world.phase == "Failed", "an old API server has forgotten the first one"
    assert "given up after 2 attempts: no space left on device" in world.status["message"]


def test_a_newer_server_itself_counts_heads_that_are_removed() -> None:
    world = running_world(faultTolerance={"backoffLimit": 0})
    world.server = Server(minor=26)
    world.put(head(**outlived(1)))
    assert world.phase == "Retrying" and "deletionTimestamp" in world.pods["pole-head-a"]["metadata"]
    world.batch("Failed", "BackoffLimitExceeded")
    assert world.phase == "Failed"


def test_a_suspension_costs_a_head_with_a_side_car_no_attempt() -> None:
    world = running_world(faultTolerance={"backoffLimit": 1})
    world.edit(suspend=True)
    world.lose("pole-head-a", "pole-cpu-1", "pole-cpu-2")
    world.edit(suspend=False)
    world.put(head("pole-head-b", created=60, **outlived(1)))
    assert (world.phase, world.status["attempts"]) == ("Retrying", 2)


@pytest.mark.parametrize("restart", ["suspension", "deleted batch Job"])
def test_a_head_that_was_stopped_on_purpose_is_no_attempt_that_failed(restart: str) -> None:
    world = running_world(faultTolerance={"backoffLimit": 0})
    if restart == "suspension":
        world.edit(suspend=True)
        world.lose("pole-head-a", "pole-cpu-1", "pole-cpu-2")
        world.edit(suspend=False)
    else:
        world.children["Job", "pole-head"]["metadata"]["deletionTimestamp"] = at(1)
        world.lose("pole-head-a")
    world.put(head("pole-head-b", created=60, **ready(60)))
    assert world.status["attempts"] == 2
    world.put(head("pole-head-b", created=60, **ended(1, result("boom"))))
    world.batch("Failed", "BackoffLimitExceeded")
    assert world.status["message"] == "given up after 1 attempt: boom"


def test_autoscalers_count_the_first_pool_alone() -> None:
    world = running_world(workers=[pool(), pool("other", replicas=1)])
    world.put(worker("pole-other-1", "other", **ready()))
    workers = world.status["workers"]
    assert (workers["ready"], workers["scaled"], workers["desired"]) == (3, 2, 3)
    assert workers["selector"].endswith("reef.dev/pool=cpu")


def test_half_a_character_in_what_a_head_says_keeps_nothing_from_being_written() -> None:
    world = running_world()
    best = {"name": "t1", "config": {"optimizer \ud800": "adam \udfff"}, "metric": 1.0}
    world.says("pole-head-a", "waiting", message="lost \ud800", storageProblem="\ud800", bestTrial=best)
    assert world.status["message"] == "lost ?"
    assert world.status["bestTrial"]["config"] == {"optimizer ?": "adam ?"}
    world.put(head(**ended(1, result("worker \ud800 raised"))))
    assert "worker ? raised" in world.status["message"]
    json.dumps(world.status, ensure_ascii=False).encode()


def test_a_job_succeeds_and_is_cleaned_up_in_stages() -> None:
    world = running_world(cleanup={"workerDelaySeconds": 10, "headDelaySeconds": 20}, ttlSecondsAfterFinished=100)
    plan = world.put(head(**ended(0, result("reward reached"))))
    assert world.phase == "Succeeded" and plan.requeue_after_s == 10
    assert world.status["training"]["rewardMean"] == 450.0 and world.status["completionTime"]
    assert "Deployment/pole-cpu" in world.kinds()
    assert world.after(10).requeue_after_s == 20 and "Deployment/pole-cpu" not in world.kinds()
    world.after(19)
    assert "Job/pole-head" in world.kinds()
    world.after(1)
    assert "deletionTimestamp" in world.children["Job", "pole-head"]["metadata"]
    plan = world.lose("pole-head-a")
    assert world.kinds() == [kind for kind in HEAD_OBJECTS if kind != "Job/pole-head"] and plan.requeue_after_s == 70
    assert world.status["training"]["rewardMean"] == 450.0, "the result outlives the pod"
    world.after(70)
    assert world.job == {}


def test_a_head_that_ended_well_needs_no_second_look_before_its_workers_go() -> None:
    world = running_world()
    world.pods["pole-head-a"] = head(**ended(0, result()))
    plan = world.step()
    assert plan.freshness is Freshness.CACHED and [action.kind for action in plan.actions] == ["Deployment"]
    world.settle()
    world.now += timedelta(seconds=300)
    plan = world.step()
    assert plan.freshness is Freshness.ALL_READ and [action.kind for action in plan.actions] == ["Job"]


def test_a_success_that_only_the_batch_job_tells_needs_everything_as_it_is_now() -> None:
    world = running_world()
    del world.pods["pole-head-a"]
    world.children["Job", f"{NAME}-head"]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    plan = world.step()
    assert (world.phase, plan.freshness) == ("Succeeded", Freshness.ALL_READ)


def test_what_is_made_or_changed_needs_the_job_as_it_is_now() -> None:
    world = World(job())
    plan = world.step()
    assert plan.freshness is Freshness.JOB_READ and {type(action) for action in plan.actions} == {Create}
    world = running_world()
    world.job["spec"]["workers"][0]["replicas"] = 3
    plan = world.step()
    assert plan.freshness is Freshness.JOB_READ and {type(action) for action in plan.actions} == {Patch}


def test_what_is_removed_needs_everything_as_it_is_now() -> None:
    world = running_world()
    world.job["spec"]["workers"] = [pool("other")]
    plan = world.step()
    assert plan.freshness is Freshness.ALL_READ and Delete in {type(action) for action in plan.actions}


def test_a_phase_that_promises_something_needs_everything_as_it_is_now() -> None:
    failed, suspended = running_world(), new_world(suspend=True)
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    failed.children["Job", f"{NAME}-head"]["status"] = {"conditions": [condition]}
    failed.children = {key: child for key, child in failed.children.items() if key[0] != "Deployment"}
    assert suspended.phase == "Suspended"
    suspended.job["status"]["phase"] = "Suspending"
    for world, phase in ((failed, "Failed"), (suspended, "Suspended")):
        plan = world.step()
        assert (plan.actions, world.phase, plan.freshness) == ((), phase, Freshness.ALL_READ)
        assert world.step().freshness is Freshness.CACHED, "it is on record"


def test_a_status_alone_may_rest_on_caches() -> None:
    world = running_world()
    world.report = ("pole-head-a-uid", {"state": "training", "training": {"iteration": 2, "timesteps": 200}})
    plan = world.step()
    assert plan.status is not None and plan.freshness is Freshness.CACHED
    assert world.step().freshness is Freshness.CACHED


def test_by_default_workers_go_at_once_and_the_heads_log_can_be_read_for_five_minutes() -> None:
    world = running_world()
    plan = world.put(head(**ended(0, result())))
    assert "Deployment/pole-cpu" not in world.kinds() and plan.requeue_after_s == 300
    world.after(299)
    assert "deletionTimestamp" not in world.children["Job", "pole-head"]["metadata"]
    world.after(1)
    assert "deletionTimestamp" in world.children["Job", "pole-head"]["metadata"]


def test_without_delays_the_head_goes_only_when_its_result_is_on_record() -> None:
    world = running_world(cleanup={"headDelaySeconds": 0})
    world.pods["pole-head-a"] = head(**ended(0, result()))
    plan = world.step()
    assert [(action.kind, action.name) for action in plan.actions] == [("Deployment", "pole-cpu")]
    assert plan.status and plan.status["phase"] == "Succeeded" and plan.requeue_after_s == 1
    assert [(action.kind, action.name) for action in world.step().actions] == [("Job", "pole-head")]


def test_a_head_without_workers_goes_only_when_its_result_is_on_record() -> None:
    world = new_world(workers=None, cleanup={"headDelaySeconds": 0})
    world.pods["pole-head-a"] = head(**ended(0, result()))
    assert world.step().actions == () and world.phase == "Succeeded"
    assert [action.kind for action in world.step().actions] == ["Job"]


def test_the_head_goes_after_workers_that_take_their_time() -> None:
    world = running_world(cleanup={"headDelaySeconds": 0})
    world.children["Deployment", "pole-cpu"]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    world.put(head(**ended(0, result())))
    assert "deletionTimestamp" not in world.children["Job", "pole-head"]["metadata"]


def test_workers_go_when_the_head_is_done_and_lingers() -> None:
    world = running_world()
    world.says("pole-head-a", "done", message="worker 3 raised")
    assert "Deployment/pole-cpu" in world.kinds(), "a head that is about to fail is done as well, and comes again"
    world.says("pole-head-a", "done", exitCode=0, training={"iteration": 5, "timesteps": 500})
    assert world.phase == "Running" and "Deployment/pole-cpu" not in world.kinds()
    world.says(
        "pole-head-a", "done", message="stopped: x >= 5", exitCode=0, training={"iteration": 5, "timesteps": 500}
    )
    assert world.status["message"].startswith("the training has ended") and "stopped: x >= 5" in world.status["message"]
    world.put(head(**ended(0, result("stopped: x >= 5"))))
    assert world.status["message"] == "the training reached its end: stopped: x >= 5"
    world = running_world(cleanup={"workerDelaySeconds": 60})
    world.says("pole-head-a", "done", exitCode=0)
    assert "Deployment/pole-cpu" in world.kinds()


def lingering_world(**spec: Any) -> World:
    world = running_world(**spec)
    world.says("pole-head-a", "done", exitCode=0, **result("stopped: x >= 5"))
    assert world.condition("WorkersReady")["message"] == "the training has ended: none are needed"
    return world


@pytest.mark.parametrize("checkpoint", [None, CLAIM])
def test_a_head_that_is_deleted_while_it_lingers_has_trained_to_the_end(checkpoint: Any) -> None:
    world = lingering_world(checkpoint=checkpoint)
    late = head("pole-head-b", created=60, **ready(since=60))
    going = head(**ended(0, result("stopped: x >= 5", workersRecreated=3, evaluation={"iteration": 5}), finished=55))
    going["metadata"]["deletionTimestamp"] = at(55)
    world.now += timedelta(seconds=60)
    world.put(late, going)
    assert (world.phase, world.status["message"]) == ("Succeeded", "the training reached its end: stopped: x >= 5")
    assert world.children["Job", "pole-head"]["spec"]["parallelism"] == 0, "no head is started again"
    assert "deletionTimestamp" in world.pods["pole-head-b"]["metadata"] and world.status["workers"]["recreated"] == 3
    before = world.status
    world.lose("pole-head-a")
    world.says("pole-head-b", "training", training={"iteration": 1, "timesteps": 100}, workersRecreated=1)
    assert world.status == before
    at_the_end = {"iteration": 7, "timesteps": 7000, "episodes": 0}  # one that resumed, and had nothing to do
    world.put(head("pole-head-b", created=60, **ended(0, result(training=at_the_end, workersRecreated=1))))
    assert world.status == before


def test_a_head_that_came_after_the_end_is_not_heard_and_removed() -> None:
    world = lingering_world(checkpoint=None)
    world.lose("pole-head-a")
    world.now += timedelta(seconds=60)
    world.put(head("pole-head-b", created=60, **ready(since=60)))
    world.says("pole-head-b", "starting", message="starting the rollout workers")
    world.batch("Complete")  # the batch Job counted the head that is gone
    assert (world.phase, world.status["message"]) == ("Succeeded", "the training reached its end")
    assert world.status["training"]["iteration"] == 7
    assert "deletionTimestamp" in world.pods["pole-head-b"]["metadata"]
    world.says("pole-head-b", "training", training={"iteration": 1, "timesteps": 100}, checkpoint=CHECKPOINT)
    assert world.status["training"]["iteration"] == 7 and "checkpoint" not in world.status
    world.put(head("pole-head-b", created=60, **ended(143, result(training={"iteration": 2, "timesteps": 200}))))
    assert world.status["training"]["iteration"] == 7


@pytest.mark.parametrize("state", [{"deletionTimestamp": at(90)}, {}])
def test_a_late_head_is_not_heard_either_where_it_is_first_seen_with_the_end(state: Any) -> None:
    world = running_world(checkpoint={"storage": {"uri": "s3://results/pole"}})
    world.says("pole-head-a", "done", exitCode=0, **result(evaluation={"iteration": 5}, checkpoint=CHECKPOINT))
    before = world.status
    world.pods["pole-head-b"] = head("pole-head-b", created=60, **ready(since=60))
    world.pods["pole-head-b"]["metadata"] |= state
    world.report = ("pole-head-b-uid", result("begins", training={"iteration": 1}, storageProblem="403 Forbidden"))
    world.now += timedelta(seconds=60)
    del world.pods["pole-head-a"]
    world.batch("Complete")
    kept = ("attempts", "head", "training", "evaluation", "checkpoint")
    assert world.phase == "Succeeded" and {key: world.status[key] for key in kept} == {key: before[key] for key in kept}
    assert world.status["message"] == "the training reached its end"
    assert world.condition("StorageDurable")["status"] == "True"


def test_the_last_words_of_the_head_that_trained_count_also_when_they_come_after_the_end() -> None:
    world = running_world()
    world.says("pole-head-a", "training", **result())
    going = head(**ready())
    going["metadata"]["deletionTimestamp"] = at(55)
    world.pods["pole-head-a"] = going
    world.batch("Complete")
    assert world.phase == "Succeeded" and "checkpoint" not in world.status
    world.put(head(**ended(0, result(checkpoint=CHECKPOINT))))
    assert world.status["checkpoint"] == CHECKPOINT


def test_a_checkpoint_of_a_head_that_went_back_is_the_newest() -> None:
    world = running_world()
    training = {"iteration": 9, "timesteps": 900}
    world.says("pole-head-a", "training", training=training, checkpoint=CHECKPOINT | {"iteration": 5})
    world.lose("pole-head-a")
    again = CHECKPOINT | {"path": "/results/checkpoint_000008", "iteration": 8, "time": "2026-01-01T13:00:00Z"}
    words = result(training={"iteration": 8, "timesteps": 800}, checkpoint=again, exitCode=143)
    world.put(head("pole-head-b", created=60, **ended(137, words)))
    assert world.status["checkpoint"] == again


def test_workers_go_too_when_the_head_has_failed_for_good_and_lingers() -> None:
    world = running_world()
    world.says("pole-head-a", "done", message="loss nan", exitCode=1)
    assert "Deployment/pole-cpu" in world.kinds()
    world.says("pole-head-a", "done", message="loss nan", exitCode=2, training={"iteration": 5, "timesteps": 500})
    assert world.phase == "Running" and "Deployment/pole-cpu" not in world.kinds()
    world.put(head(**ended(2, result("loss nan", exitCode=2))))
    assert world.phase == "Failed" and "loss nan" in world.status["message"]


def test_a_job_that_was_wrong_from_the_beginning_never_runs() -> None:
    world = new_world()
    world.put(head(**ready()))
    world.says("pole-head-a", "done", message="lrr is no setting", exitCode=2)
    assert world.phase == "Provisioning"


def test_a_queue_may_create_a_job_suspended_and_place_it_before_it_starts() -> None:
    world = new_world(suspend=True)
    assert world.kinds() == [] and world.phase == "Suspended"
    world.edit(head={"nodeSelector": {"flavor": "a100"}}, workers=[pool(nodeSelector={"flavor": "spot"})])
    assert world.kinds() == [] and world.phase == "Suspended"
    world.edit(suspend=False)
    world.put(head(**ready()))
    for kind, name, flavor in (("Job", "pole-head", "a100"), ("Deployment", "pole-cpu", "spot")):
        assert world.children[kind, name]["spec"]["template"]["spec"]["nodeSelector"] == {"flavor": flavor}
    assert "when the job is suspended and resumed" not in world.condition("HeadReady").get("message", "")


def test_a_changed_head_is_told_to_wait_for_a_resume() -> None:
    world = running_world(head={"nodeSelector": {"zone": "a"}})
    world.edit(head={"nodeSelector": {"zone": "b"}})
    assert world.phase == "Running" and world.condition("HeadReady")["status"] == "True"
    assert "when the job is suspended and resumed" in world.condition("HeadReady")["message"]
    world.edit(head={"nodeSelector": {"zone": "a"}})
    assert not world.condition("HeadReady").get("message")
    world.edit(faultTolerance={"backoffLimit": 9, "noRetryExitCodes": [2, 2]})  # the same, or in effect at once
    assert not world.condition("HeadReady").get("message")
    world.edit(faultTolerance={"terminationGracePeriodSeconds": 600})
    assert world.condition("HeadReady")["message"]
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.edit(suspend=False)
    world.put(head("pole-head-b", created=60, **ready(since=60)))
    assert world.condition("HeadReady")["status"] == "True" and not world.condition("HeadReady").get("message")


@pytest.mark.parametrize("status", [waiting("ErrImagePull", "no such image"), unschedulable(), ready(), {}])
def test_an_edit_that_a_head_does_not_take_is_answered_whatever_it_waits_for(status: dict[str, Any]) -> None:
    world = new_world(image="registry/trainer:typo")
    world.put(head(**status))
    world.edit(image="registry/trainer:right", head={"nodeSelector": {"zone": "b"}})
    message = world.condition("HeadReady")["message"]
    assert "changed since this head was created: spec.head or spec.faultTolerance, spec.image. This" in message
    assert message.endswith("This takes effect when the job is suspended and resumed")
    world.edit(stop={"no_such_metric_": "text"})
    assert "spec.image" not in world.condition("HeadReady")["message"], "by a refused document nothing takes effect"


def test_an_image_that_is_taken_out_of_the_document_is_answered_too() -> None:
    world = running_world(image="registry/trainer:own", imagePullPolicy="Always")
    assert not world.condition("HeadReady").get("message")
    del world.job["spec"]["image"]
    world.edit()
    message = world.condition("HeadReady")["message"]
    assert f"spec.image (now the operator's default, {world.settings.trainer_image}). This takes effect when" in message
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.edit(suspend=False)
    world.put(head("pole-head-b", created=60, **ready(60)))
    assert not world.condition("HeadReady").get("message")


def test_a_failed_head_is_retried_and_workers_stay() -> None:
    world = running_world()
    world.put(head(**ended(1, "Traceback: boom")))
    assert world.phase == "Retrying" and "boom" in world.status["message"]
    assert "Deployment/pole-cpu" in world.kinds() and world.status["attempts"] == 1
    world.put(head("pole-head-b", created=20, **ready(since=20)))
    assert world.phase == "Retrying" and world.status["attempts"] == 2
    world.says("pole-head-b", "training", training={"iteration": 3, "timesteps": 300})
    assert world.phase == "Running" and world.status["head"]["pod"] == "pole-head-b"
    assert world.told.count("Retrying") == 1


def test_a_head_that_vanished_is_retried() -> None:
    world = running_world()
    world.lose("pole-head-a")
    assert world.phase == "Retrying"
    world.put(head("pole-head-b", created=20, **ready(since=20)))
    assert world.status["attempts"] == 2
    world.says("pole-head-b", "training")
    assert world.phase == "Running" and world.status["attempts"] == 2


def test_a_head_replaced_within_one_second_is_counted_once() -> None:
    world = running_world()
    world.pods.pop("pole-head-a")
    world.put(head("pole-head-b", **ready()))
    assert world.status["attempts"] == 2 and world.status["head"]["pod"] == "pole-head-b"
    assert world.phase == "Retrying", "that the former head trained says nothing of this one"
    world.after(5)
    assert world.status["attempts"] == 2


@pytest.mark.parametrize("status", [ended(1, "boom"), ready()])
def test_of_heads_of_one_second_the_one_that_lives_counts(status: dict[str, Any]) -> None:
    world = new_world()
    former = head("pole-head-z", **status)
    former["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    world.put(former)
    world.put(head("pole-head-a", **ready()))
    assert world.status["head"]["pod"] == "pole-head-a" and world.status["attempts"] == 2
    assert world.condition("HeadReady")["status"] == "True"


def test_a_head_whose_batch_job_is_being_deleted_does_not_count() -> None:
    world = running_world()
    world.children["Job", "pole-head"]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    del world.children["Deployment", "pole-cpu"]
    world.settle()
    assert world.phase == "Retrying" and "Deployment/pole-cpu" not in world.kinds()


def test_a_head_that_is_being_deleted_yields_to_its_successor() -> None:
    world = running_world()
    world.pods["pole-head-a"]["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:09Z"
    world.put(head("pole-head-b", created=9, **ready(since=9)))
    world.says("pole-head-b", "training")
    assert world.phase == "Running" and world.status["attempts"] == 2


def test_what_a_head_said_at_its_end_is_told_once() -> None:
    world = running_world()
    world.put(head(**ended(1, result("worker 3 raised ZeroDivisionError"))))
    assert world.phase == "Retrying" and world.status["message"].count("worker 3 raised") == 1


def test_the_batch_jobs_limit_ends_the_job_with_the_heads_message() -> None:
    world = running_world(cleanup={"headDelaySeconds": 600})
    world.put(head(**ended(1, result("worker 3 raised ZeroDivisionError"))))
    world.batch("Failed", "BackoffLimitExceeded")
    assert world.phase == "Failed" and "worker 3 raised ZeroDivisionError" in world.status["message"]
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert "Deployment/pole-cpu" not in world.kinds() and "Job/pole-head" in world.kinds()


@pytest.mark.parametrize(("code", "codes", "phase"), [(2, None, "Failed"), (7, [7], "Failed"), (2, [7], "Retrying")])
def test_exit_codes_that_are_not_retried(code: int, codes: list[int] | None, phase: str) -> None:
    tolerance = {"noRetryExitCodes": codes} if codes else {}
    world = running_world(faultTolerance=tolerance, cleanup={"headDelaySeconds": 600})
    world.put(head(**ended(code, result("lr: 'x' is no number"))))
    assert world.phase == phase
    parallelism = world.children["Job", "pole-head"]["spec"]["parallelism"]
    assert parallelism == (0 if phase == "Failed" else 1), "servers before 1.26 would start another head"


def test_a_wrong_job_fails_although_kubernetes_has_started_the_next_head_already() -> None:
    world = new_world()
    world.put(head(**ended(2, result("env='CartPol-v1' is not registered"))), head("pole-head-b", created=1))
    assert world.phase == "Failed"
    assert world.status["message"] == "env='CartPol-v1' is not registered (exit code 2 is not retried)"
    assert world.children["Job", "pole-head"]["spec"]["parallelism"] == 0, "which ends the next one"
    assert Reason.RETRYING not in world.told


@pytest.mark.parametrize("killed", [{}, {"deletionTimestamp": at(2)}], ids=["by the kernel", "as the job has failed"])
def test_a_wrong_job_fails_although_the_next_head_was_killed_meanwhile(killed: dict[str, str]) -> None:
    world = new_world()
    other = head("pole-head-b", created=1, **ended(143))
    other["metadata"] |= killed
    world.put(head(**ended(2, result("env='CartPol-v1' is not registered"))), other)
    assert world.phase == "Failed" and Reason.RETRYING not in world.told
    assert world.status["message"] == "env='CartPol-v1' is not registered (exit code 2 is not retried)"


@pytest.mark.parametrize("state", ["training", "starting"])
def test_codes_that_are_added_later_count_for_the_next_batch_job(state: str) -> None:
    world = running_world()
    world.put(head(**ended(3, result("boom"))))
    world.put(head("pole-head-b", created=20, **ready(since=20)))
    world.says("pole-head-b", state)
    phase = world.phase
    world.edit(faultTolerance={"noRetryExitCodes": [2, 3]})
    assert world.phase == phase != "Failed"


def test_codes_that_are_taken_out_count_until_the_next_batch_job() -> None:
    world = running_world()
    world.edit(faultTolerance={"noRetryExitCodes": []})
    assert "suspended and resumed" in world.condition("HeadReady")["message"]
    world.put(head(**ended(2, result("wrong"))))
    assert world.phase == "Failed" and world.condition("Failed")["reason"] == "JobWrong"


@pytest.mark.parametrize("code", [137, 139])
def test_a_head_that_was_cut_off_takes_nothing_back(code: int) -> None:
    """What it had prepared to be read then may be older than what it last answered."""
    world = running_world()
    newest, older = ({"path": f"/c{n}", "iteration": n, "time": f"2026-01-01T12:00:{n}+00:00"} for n in (20, 18))
    world.says("pole-head-a", "training", training={"iteration": 20, "timesteps": 2000}, checkpoint=newest)
    words = result("silent", training={"iteration": 18, "timesteps": 1800}, checkpoint=older, exitCode=1)
    world.put(head(**ended(code, words)))
    assert world.status["checkpoint"]["path"] == "/c20" and world.status["training"]["iteration"] == 20


def test_a_head_that_was_cut_off_adds_what_nobody_knew() -> None:
    world = running_world()
    best = {"name": "t3", "iteration": 9, "checkpoint": "/t3"}
    trials = {"total": 9, "finished": 4}
    world.says("pole-head-a", "training", training={"timesteps": 1700}, trials=trials, bestTrial=best)
    newer = {"trials": {"total": 9, "finished": 5}, "bestTrial": {**best, "name": "t7"}}
    world.put(head(**ended(137, result("silent", training={"timesteps": 1800}, exitCode=1, **newer))))
    assert world.status["training"]["timesteps"] == 1800 and world.status["bestTrial"]["name"] == "t7"


def test_of_a_sweep_whose_head_was_cut_off_the_best_trial_stays() -> None:
    world = running_world()
    best, before = ({"name": name, "iteration": 9, "checkpoint": f"/{name}"} for name in ("t7", "t3"))
    world.says("pole-head-a", "training", trials={"total": 9, "finished": 5}, bestTrial=best)
    words = result("silent", trials={"total": 9, "finished": 4}, bestTrial=before, exitCode=1)
    world.put(head(**ended(137, words)))
    assert (world.status["trials"]["finished"], world.status["bestTrial"]["name"]) == (5, "t7")


@pytest.mark.parametrize(
    ("without", "where"),
    [
        ({"checkpoint": None}, "from step 0, as spec.checkpoint.storage is not given: "),
        ({"checkpoint": None, "restoreFrom": "/c"}, "from spec.restoreFrom, as spec.checkpoint.storage is not given: "),
        ({}, "from the newest checkpoint: "),
    ],
)
def test_a_retry_says_where_it_begins(without: dict[str, Any], where: str) -> None:
    world = new_world(**without)
    world.put(head(**ended(3, result("boom"))), head("pole-head-b", created=1))
    assert world.phase == "Retrying" and world.status["message"].startswith(where)


def test_a_retry_says_why_the_head_before_ended() -> None:
    world = new_world()
    world.put(head(**ended(3, result("boom"))), head("pole-head-b", created=1))
    assert world.phase == "Retrying" and Reason.RETRYING in world.told
    assert "pod pole-head-b starts" in world.status["message"]
    assert "pod pole-head-a: the container ended with exit code 3: boom" in world.status["message"]


def test_suspend_stops_the_head_then_the_workers_and_says_so_when_all_are_gone() -> None:
    world = running_world()
    world.edit(suspend=True)
    assert world.phase == "Suspending" and "pole-head-a" in world.status["message"]
    assert "Deployment/pole-cpu" in world.kinds(), "the head may need its workers for the checkpoint"
    world.lose("pole-head-a")
    assert world.phase == "Suspending" and not {"Job/pole-head", "Deployment/pole-cpu"} & set(world.kinds())
    world.lose("pole-cpu-1")
    assert world.phase == "Suspending"
    world.lose("pole-cpu-2")
    assert world.phase == "Suspended" and world.condition("Suspended")["status"] == "True"
    assert world.status["workers"]["desired"] == 0


def test_workers_of_a_suspended_job_stay_while_its_batch_job_does_though_no_head_is_known() -> None:
    world = running_world()
    world.edit(suspend=True)
    late = world.pods.pop("pole-head-a")  # the watch of pods has not seen it yet
    assert "Deployment/pole-cpu" in (world.settle() and world.kinds())
    world.put(late)
    assert "Deployment/pole-cpu" in world.kinds()
    world.lose("pole-head-a")
    assert "Deployment/pole-cpu" not in world.kinds()


def test_a_worker_that_is_seen_after_the_word_suspended_is_waited_for() -> None:
    world = running_world()
    world.edit(suspend=True)
    late = world.pods["pole-cpu-2"]
    world.lose("pole-head-a", "pole-cpu-1", "pole-cpu-2")
    assert world.phase == "Suspended"
    world.put(late)
    assert world.phase == "Suspending" and world.condition("Suspended")["status"] != "True"
    world.lose("pole-cpu-2")
    assert world.phase == "Suspended"


def test_a_job_without_storage_begins_anew_and_says_so() -> None:
    world = running_world(checkpoint=None)
    training, evaluation = {"iteration": 9, "timesteps": 900}, {"iteration": 9, "rewardMean": 445.0}
    world.says("pole-head-a", "training", training=training, evaluation=evaluation, checkpoint=CHECKPOINT)
    world.edit(suspend=True)
    world.lose("pole-head-a", "pole-cpu-1", "pole-cpu-2")
    assert world.phase == "Suspended" and world.status["message"].endswith(
        "spec.suspend: false resumes the job from step 0"
    )
    assert "checkpoint" not in world.status and "evaluation" not in world.status
    assert world.status["training"]["iteration"] == 9


def test_a_suspended_head_without_its_batch_job_still_has_its_workers() -> None:
    world = running_world()
    del world.children["Job", "pole-head"]
    world.edit(suspend=True)
    assert world.phase == "Suspending" and "Deployment/pole-cpu" in world.kinds()
    world.lose("pole-head-a")
    assert "Deployment/pole-cpu" not in world.kinds()


@pytest.mark.parametrize("status", [ready(), ended(1)], ids=["runs", "has failed"])
def test_a_head_that_lost_its_batch_job_does_not_hold_up_a_suspension(status: Any) -> None:
    """As after `kubectl delete job --cascade=orphan`; one that a batch Job owns ends with that."""
    world = running_world()
    del world.children["Job", "pole-head"]
    owned = head("pole-head-b", created=9, **ready(since=9))
    owned["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "unseen", "controller": True}]
    world.pods |= {"pole-head-a": head(**status), "pole-head-b": owned}
    world.edit(suspend=True)
    going = [name for name, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]]
    assert world.phase == "Suspending" and "pole-head-a" in going and "pole-head-b" not in going
    world.lose("pole-head-a", "pole-head-b")
    world.lose("pole-cpu-1", "pole-cpu-2")
    assert world.phase == "Suspended"


def test_a_head_that_lost_its_batch_job_does_not_outlive_the_end() -> None:
    world = running_world(activeDeadlineSeconds=60)
    del world.children["Job", "pole-head"]
    world.after(60)
    assert world.phase == "Failed" and "deletionTimestamp" in world.pods["pole-head-a"]["metadata"]


def test_resume_makes_everything_again() -> None:
    world = running_world()
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.told.clear()
    world.edit(suspend=False)
    assert world.phase == "Pending" and "Job/pole-head" in world.kinds()
    world.put(head("pole-head-b", created=60, **ready(since=60)))
    world.says("pole-head-b", "training")
    assert world.phase == "Running" and world.status["attempts"] == 2
    assert world.told == ["Resumed", "Provisioning", "Running"]


def test_a_suspension_that_is_called_off_waits_for_the_former_head() -> None:
    world = running_world()
    world.edit(suspend=True)
    world.edit(suspend=False)
    assert world.phase == "Pending" and "deletionTimestamp" in world.children["Job", "pole-head"]["metadata"]
    world.pods["pole-head-a"] = head(**ended(2, result("stopped")))
    world.batch("Failed", "BackoffLimitExceeded")
    assert world.phase == "Pending", "a head that was stopped on purpose has not failed"
    world.lose("pole-head-a")
    assert "deletionTimestamp" not in world.children["Job", "pole-head"]["metadata"]


def test_a_job_that_is_created_suspended_makes_nothing() -> None:
    world = new_world(suspend=True)
    assert world.phase == "Suspended" and world.kinds() == []
    world.edit(suspend=False)
    assert world.kinds() == HEAD_OBJECTS


def test_a_job_that_ends_while_it_is_being_suspended_has_succeeded() -> None:
    world = running_world()
    world.edit(suspend=True)
    world.put(head(**ended(0, result())))
    assert world.phase == "Succeeded"


def test_scale() -> None:
    world = running_world()
    world.edit(replicas=3)
    deployment = world.children["Deployment", "pole-cpu"]
    assert deployment["spec"]["replicas"] == 3 and world.status["workers"]["desired"] == 3
    assert world.told[-1] == "Scaled" and world.phase == "Running"
    world.edit(replicas=0)
    assert deployment["spec"]["replicas"] == 0
    uid = deployment["metadata"]["uid"]
    assert world.children["Deployment", "pole-cpu"]["metadata"]["uid"] == uid, "scaling makes no new pods"


def test_scaling_below_the_minimum_leaves_a_document_that_the_head_accepts() -> None:
    world = running_world(workers=[pool(replicas=4, minReplicas=3)])
    world.edit(replicas=1)
    document = json.loads(world.children["ConfigMap", "pole-job"]["data"]["job.json"])
    spec = job_from_document(document).spec
    assert spec.pool_replicas == {"cpu": 1} and spec.workers[0].least(1) == 1


def test_a_pool_with_another_template_is_made_anew() -> None:
    world = running_world()
    before = world.children["Deployment", "pole-cpu"]["metadata"]["uid"]
    world.edit(workers=[pool(nodeSelector={"disk": "fast"})])
    after = world.children["Deployment", "pole-cpu"]
    assert after["metadata"]["uid"] != before
    assert after["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}


def test_pools_come_and_go() -> None:
    world = running_world()
    world.edit(workers=[pool("gpu", 1)])
    assert "Deployment/pole-gpu" in world.kinds() and "Deployment/pole-cpu" not in world.kinds()


def test_another_default_image_leaves_running_jobs_alone() -> None:
    world = running_world()
    world.settings = type(world.settings)(trainer_image="reef-trainer:next")
    plan = world.settle()
    assert not plan.actions
    assert "spec.image (now the operator's default, reef-trainer:next)" in world.condition("HeadReady")["message"]
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.edit(suspend=False)
    template = world.children["Job", "pole-head"]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == "reef-trainer:next"


def test_the_backoff_limit_follows_the_document() -> None:
    world = running_world()
    world.edit(faultTolerance={"backoffLimit": 9})
    assert world.children["Job", "pole-head"]["spec"]["backoffLimit"] == 9


def test_active_deadline_counts_running_time_only() -> None:
    world = running_world(activeDeadlineSeconds=100)
    assert world.after(40).requeue_after_s == 60
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    assert world.status["activeSeconds"] == 40 and "activeSince" not in world.status
    world.after(1000)
    world.edit(suspend=False)
    world.put(head("pole-head-b", created=1040, **ready(since=1040)))
    assert world.says("pole-head-b", "training").requeue_after_s == 60
    world.after(59)
    assert world.phase == "Running"
    world.after(1)
    assert world.phase == "Failed" and world.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "activeDeadlineSeconds: 100" in world.status["message"]


def test_a_deadline_lets_the_head_write_its_checkpoint_before_the_workers_go() -> None:
    world = running_world(activeDeadlineSeconds=100)
    plan = world.after(100)
    assert world.children["Job", "pole-head"]["spec"]["parallelism"] == 0
    assert "Deployment/pole-cpu" in world.kinds() and plan.requeue_after_s == 60
    checkpoint = {"path": "/var/lib/reef/c", "iteration": 8, "time": "2026-01-01T12:01:41Z"}
    world.put(head(**ended(143, result(checkpoint=checkpoint))))
    assert world.status["checkpoint"]["iteration"] == 8 and world.phase == "Failed"
    assert "Deployment/pole-cpu" not in world.kinds()


@pytest.mark.parametrize("code", [0, 2])
def test_a_head_that_lingers_is_not_late(code: int) -> None:
    world = running_world(activeDeadlineSeconds=100)
    world.after(90)
    world.says("pole-head-a", "done", exitCode=code, training={"iteration": 5, "timesteps": 500})
    assert world.after(20).requeue_after_s == 100 + 30 + 60 - 110 and world.phase == "Running"
    world.put(head(**ended(code, result("loss nan" if code else "", exitCode=code))))
    assert world.phase == ("Failed" if code else "Succeeded")
    assert code == 0 or world.condition("Failed")["reason"] == "JobWrong"


def test_a_head_that_is_done_and_does_not_end_is_late_in_the_end() -> None:
    world = running_world(activeDeadlineSeconds=100)
    world.says("pole-head-a", "done", exitCode=0, training={"iteration": 5, "timesteps": 500})
    world.after(189)
    assert world.phase == "Running"
    world.after(1)
    assert world.phase == "Failed" and world.condition("Failed")["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(("codes", "backoff"), [([2], 0), ([2, 137], 3)])
def test_a_head_that_was_killed_for_its_memory_ends_the_job_with_that_word(codes: list[int], backoff: int) -> None:
    """Its termination message is what it wrote in case of a kill, which it knows nothing of."""
    world = running_world(faultTolerance={"noRetryExitCodes": codes, "backoffLimit": backoff})
    world.pods["pole-head-a"] = head(**ended(137, result("ended without a word", exitCode=1), reason="OOMKilled"))
    world.settle() if 137 in codes else world.batch("Failed", "BackoffLimitExceeded")
    assert world.phase == "Failed"
    assert "OOMKilled" in world.status["message"] and "without a word" not in world.status["message"]


def test_a_suspended_head_on_a_lost_node_holds_workers_no_longer_than_its_grace_period() -> None:
    world = running_world()
    lost = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    world.pods["pole-head-a"]["status"]["conditions"] = lost
    assert world.edit(suspend=True).requeue_after_s == 60
    world.after(59)
    assert "Deployment/pole-cpu" in world.kinds()
    plan = world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds() and plan.requeue_after_s is None
    world.lose("pole-cpu-1", "pole-cpu-2")
    assert world.phase == "Suspending" and "delete pod pole-head-a --force" in world.status["message"]
    world.lose("pole-head-a")
    assert world.phase == "Suspended"


def test_a_suspended_head_on_a_lost_node_whose_batch_job_is_gone_does_not_hold_workers_for_ever() -> None:
    world = running_world()
    del world.children["Job", "pole-head"]
    world.pods["pole-head-a"]["metadata"]["deletionTimestamp"] = at(600)  # its template gives it ten minutes
    assert world.edit(suspend=True).requeue_after_s == 600
    world.after(599)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds()


def test_a_suspension_that_waits_says_nothing_of_what_befell_a_pod_earlier() -> None:
    world = running_world()
    again = ready()
    again["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    world.pods["pole-cpu-1"] = worker("pole-cpu-1", **(again | {"conditions": []}))
    world.edit(suspend=True)
    assert world.phase == "Suspending" and "OOMKilled" not in world.status["message"]


def test_a_head_on_a_lost_node_holds_workers_no_longer_than_its_grace_period() -> None:
    world = running_world(activeDeadlineSeconds=100)
    world.after(100)
    world.after(59)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds()


@pytest.mark.parametrize("default", [None, 30.0])
def test_waiting_has_a_deadline(default: float | None) -> None:
    world = World(job(preRunningDeadlineSeconds=None if default else 30))
    world.settings = type(world.settings)(default_pre_running_deadline_s=default)
    assert world.settle().requeue_after_s == 30
    world.put(head(node="", **unschedulable("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")))
    world.after(30)
    assert world.phase == "Failed" and world.condition("Failed")["reason"] == "PreRunningDeadlineExceeded"
    assert "Insufficient nvidia.com/gpu" in world.status["message"]


def test_workers_make_room_for_a_head_that_finds_none() -> None:
    """Pending ones may have taken the room that the head before left; without a head all are idle."""
    world = running_world()
    world.put(head(**ended(137)))
    world.put(head("pole-head-b", node="", created=10, **unschedulable()))
    plan = world.settle()
    assert "Deployment/pole-cpu" in world.kinds() and plan.requeue_after_s == 130
    world.after(129)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds() and world.phase == "Retrying"
    world.put(head("pole-head-b", created=10, **waiting("ContainerCreating")))
    assert "Deployment/pole-cpu" in world.kinds()


def test_workers_make_room_in_the_quota_for_a_head_that_is_not_even_created() -> None:
    world = running_world()
    world.lose("pole-head-a")
    world.after(119)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds() and world.phase == "Retrying"


@pytest.mark.parametrize(("failed", "back_off_s"), [(1, 10), (4, 80), (9999, 600)])
def test_workers_stay_while_the_batch_job_waits_before_it_makes_the_next_head(failed: int, back_off_s: int) -> None:
    world = running_world()
    world.children["Job", "pole-head"]["status"] = {"failed": failed}
    world.lose("pole-head-a")
    world.after(back_off_s + 59)
    assert "describe" not in world.status["message"], "it waits as it should"
    world.after(60)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds()


def test_workers_make_room_for_a_head_that_a_queue_does_not_let_in() -> None:
    world = running_world()
    world.put(head(**ended(137)))
    held = gated("kueue.x-k8s.io/admission")
    held["metadata"]["name"] = held["metadata"]["uid"] = "pole-head-b"
    world.put(held)
    world.after(119)
    assert "Deployment/pole-cpu" in world.kinds()
    world.after(1)
    assert "Deployment/pole-cpu" not in world.kinds()


def test_workers_of_a_document_that_cannot_be_read_stay_whatever_the_head_waits_for() -> None:
    """Nobody would make them again."""
    world = unreadable_world()
    world.put(head(**ended(137)))
    world.put(head("pole-head-b", node="", created=10, **unschedulable()))
    world.after(300)
    assert "Deployment/pole-cpu" in world.kinds()


def test_a_pool_without_a_node_is_named_though_the_head_is_not_ready_just_then() -> None:
    world = new_world(preRunningDeadlineSeconds=30)
    world.put(head(**ready()))
    world.put(worker("pole-cpu-1", node="", **unschedulable()))
    world.put(head(**waiting("ContainerCreating")))
    world.after(30)
    message = world.status["message"]
    assert world.phase == "Failed" and "pod pole-head-a starts" in message and "Unschedulable" in message
    retried = running_world()
    retried.put(head(**ended(1, "boom")))
    assert "pool cpu" not in retried.status["message"], "workers wait for the next head"


def test_waiting_begins_anew_after_a_suspension() -> None:
    world = running_world(preRunningDeadlineSeconds=30)
    world.after(100)
    assert world.phase == "Running"
    world.edit(suspend=True)
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.after(100)
    assert world.edit(suspend=False).requeue_after_s == 30
    world.after(30)
    assert world.phase == "Failed"


@pytest.mark.parametrize("path", ["algorithm", "environment", "restoreFrom", "checkpoint"])
def test_immutable_fields_stay(path: str) -> None:
    changed: dict[str, Any] = {
        "algorithm": "DQN",
        "environment": {"name": "Acrobot-v1"},
        "restoreFrom": "/other",
        "checkpoint": {"storage": {"uri": "s3://b/f"}},
    }
    world = running_world()
    before = world.children["ConfigMap", "pole-job"]["data"]
    world.edit(**{path: changed[path]})
    assert world.phase == "Running" and world.children["ConfigMap", "pole-job"]["data"] == before
    condition = world.condition("DocumentAccepted")
    assert (condition["status"], condition["reason"]) == ("False", "ImmutableField")
    assert f"spec.{path}" in condition["message"] and "create another job" in condition["message"]
    assert world.told.count("ImmutableField") == 1


def test_an_immutable_field_that_is_set_back_is_fine_and_others_follow() -> None:
    world = running_world()
    world.edit(algorithm="DQN", replicas=5)
    assert world.children["Deployment", "pole-cpu"]["spec"]["replicas"] == 5
    world.edit(algorithm="IMPALA")
    assert world.told.count("ImmutableField") == 2, "another edit is another Event"
    world.edit(algorithm="PPO")
    assert world.condition("DocumentAccepted")["status"] == "True"


def test_a_wrong_document_is_invalid_until_it_is_mended() -> None:
    world = new_world(stop={"episode_reward_meen": 450})
    assert world.phase == "Invalid" and world.kinds() == [] and world.told == ["InvalidDocument"]
    message = world.condition("DocumentAccepted")["message"]
    assert "spec.stop" in message and "episode_reward_mean" in message and message == world.status["message"]
    assert "startTime" not in world.status
    world.edit(stop={"episode_reward_mean": 450})
    assert world.phase == "Pending" and world.condition("DocumentAccepted")["status"] == "True"


def test_a_running_job_that_becomes_wrong_goes_on_by_the_former_document() -> None:
    world = running_world()
    world.edit(stop={"nonsense": 1})
    assert world.phase == "Running" and world.told[-1] == "InvalidDocument"
    world.edit(suspend=True)
    assert world.phase == "Suspending"


def test_a_head_that_ended_without_a_result_counts_as_an_attempt_and_sets_nothing_back() -> None:
    world = running_world(faultTolerance={"backoffLimit": 0})
    world.says("pole-head-a", "training", training={"iteration": 9, "timesteps": 9000})
    world.put(head(**ended(1, result("exit(0) was called", exitCode=None))))
    assert world.phase == "Retrying" and "exit(0) was called" in world.status["message"]
    world.batch("Failed", "BackoffLimitExceeded")
    assert world.phase == "Failed" and "exit(0) was called" in world.status["message"]
    assert world.status["training"]["timesteps"] == 9000


def unreadable_world(**spec: Any) -> World:
    """A running job whose document and the one before are both wrong for this operator."""
    world = running_world(faultTolerance={"terminationGracePeriodSeconds": 90}, **spec)
    del world.children["ConfigMap", "pole-job"]
    world.edit(stop={"nonsense": 1})
    return world


def test_what_runs_is_looked_after_when_no_document_can_be_read() -> None:
    world = unreadable_world()
    condition = world.condition("DocumentAccepted")
    assert world.phase == "Running" and condition["reason"] == "InvalidDocument"
    assert "spec.stop" in condition["message"] and "What runs goes on" in condition["message"]
    before = world.kinds()
    world.edit(replicas=1)
    assert world.kinds() == before and world.children["Deployment", "pole-cpu"]["spec"]["replicas"] == 2
    world.put(head(**ended(0, result("reward reached"))))
    assert world.phase == "Succeeded" and "Deployment/pole-cpu" not in world.kinds()
    world = unreadable_world()
    world.put(head(**ended(2, result("no such environment"))))
    assert world.phase == "Failed" and "no such environment" in world.status["message"]


def test_a_job_without_a_readable_document_is_suspended_and_then_resumed_once_it_is_mended() -> None:
    world = unreadable_world(checkpoint={"frequency": 5, "storage": CLAIM["storage"]})
    world.says("pole-head-a", "training", training={"iteration": 9, "timesteps": 900}, checkpoint=CHECKPOINT)
    world.edit(suspend=True)
    assert world.phase == "Suspending" and "deletionTimestamp" in world.pods["pole-head-a"]["metadata"]
    world.lose("pole-head-a")
    world.lose("pole-cpu-1", "pole-cpu-2")
    assert world.phase == "Suspended" and not {"Job/pole-head", "Deployment/pole-cpu"} & set(world.kinds())
    assert world.status["checkpoint"] == CHECKPOINT
    world.edit(suspend=False)
    assert world.phase == "Invalid" and "Job/pole-head" not in world.kinds()
    world.edit(stop={"timesteps_total": 1000})
    assert world.phase == "Pending" and "Job/pole-head" in world.kinds()


def test_pools_of_a_head_that_is_lost_and_cannot_be_made_again_give_their_room_back() -> None:
    world = unreadable_world()
    del world.children["Job", "pole-head"]
    world.lose("pole-head-a")
    assert world.phase == "Invalid" and "Deployment/pole-cpu" not in world.kinds()


def test_a_document_of_a_newer_operator_is_read_as_far_as_it_can_be() -> None:
    """The document before is the only one with the grace period; both have a field that this operator does not know."""
    world = running_world(faultTolerance={"terminationGracePeriodSeconds": 90})
    kept = json.loads(world.children["ConfigMap", "pole-job"]["data"]["job.json"])
    kept["spec"]["newer"] = 1
    world.children["ConfigMap", "pole-job"]["data"] = {"job.json": json.dumps(kept)}
    world.edit(newer=1, faultTolerance={"newest": 2})
    assert world.phase == "Running"
    assert Situation(world.observe()).spec.fault_tolerance.termination_grace_period_seconds == 90


def test_a_damaged_document_does_not_break_the_job() -> None:
    for damaged in ("not json", "[]", "{}", '{"spec": 1}'):
        world = running_world()
        world.children["ConfigMap", "pole-job"]["data"] = {"job.json": damaged}
        world.settle()
        assert json.loads(world.children["ConfigMap", "pole-job"]["data"]["job.json"])["spec"]["algorithm"] == "PPO"


@pytest.mark.parametrize("status", [{"phase": 3}, {"phase": "Nowhere"}, {"attempts": "x"}, {"conditions": 5}])
def test_a_damaged_status_is_written_anew(status: dict[str, Any]) -> None:
    world = World(job(status=status))
    world.settle()
    assert world.phase == "Pending"


def test_what_the_api_server_refuses_is_shown() -> None:
    world = new_world()
    world.refused["Job", "pole-head"] = "exceeded quota: pods"
    world.settle()
    condition = world.condition("ObjectsAccepted")
    assert condition["reason"] == "Refused" and "Job pole-head: exceeded quota" in condition["message"]
    assert "exceeded quota" in world.status["message"] and world.told[-1] == "Refused"
    world.refused.clear()
    world.settle()
    assert world.condition("ObjectsAccepted")["status"] == "True"


def test_an_object_that_someone_deleted_comes_back() -> None:
    world = running_world()
    for key in list(world.children):
        if key == ("Job", "pole-head"):
            continue  # its pods must go first
        lost = world.children.pop(key)
        world.settle()
        assert world.children[key]["kind"] == lost["kind"]


def test_no_second_head_while_the_first_lives() -> None:
    world = running_world()
    del world.children["Job", "pole-head"]
    world.settle()
    assert "Job/pole-head" not in world.kinds()
    world.lose("pole-head-a")
    assert "Job/pole-head" in world.kinds()


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    world = running_world()
    world.job["metadata"]["deletionTimestamp"] = "2026-01-01T13:00:00Z"
    world.children.clear()
    plan = reconcile(Situation(world.observe()))
    assert (plan.actions, plan.status, plan.events, plan.requeue_after_s) == ((), None, (), None)


def test_a_finished_job_stays_finished() -> None:
    world = running_world(cleanup={"headDelaySeconds": 0})
    world.put(head(**ended(0, result())))
    world.edit(stop={"nonsense": 1}, suspend=True)
    assert world.phase == "Succeeded"
    world.lose("pole-head-a")
    assert world.phase == "Succeeded" and not {"Job/pole-head", "Deployment/pole-cpu"} & set(world.kinds())


def test_recreated_workers_add_up_over_heads() -> None:
    world = running_world()
    world.says("pole-head-a", "training", workersRecreated=2)
    world.lose("pole-head-a")
    world.put(head("pole-head-b", created=9, **ready(since=9)))
    world.says("pole-head-b", "training", workersRecreated=1)
    assert world.status["workers"]["recreated"] == 3


@pytest.mark.parametrize(("storage", "kept"), [(None, False), ({"uri": "s3://bucket/folder"}, True)])
def test_a_checkpoint_that_went_with_its_head_is_not_named_any_more(storage: Any, kept: bool) -> None:
    world = running_world(checkpoint={"storage": storage} if storage else None)
    checkpoint = {"path": "/var/lib/reef/c", "iteration": 8, "time": "2026-01-01T12:01:41Z"}
    world.says(
        "pole-head-a", "training", checkpoint=checkpoint, bestTrial={"name": "t1", "checkpoint": "/var/lib/reef/t1"}
    )
    world.lose("pole-head-a")
    assert world.status["checkpoint"]["iteration"] == 8
    world.put(head("pole-head-b", created=9))
    assert ("checkpoint" in world.status) == ("bestTrial" in world.status) == kept


def test_durable_storage_is_asked_for_once() -> None:
    world = new_world(checkpoint=None)
    assert world.told == ["NotDurable"] and "step 0" in world.condition("StorageDurable")["message"]
    world.after(60)
    assert world.told == ["NotDurable"]


def test_the_token_is_in_the_secret_alone() -> None:
    world = new_world()
    world.put(head(**ready()))
    token = world.observe().fresh_token
    secret = world.children["Secret", "pole-ray-token"]
    assert token not in json.dumps({str(key): child for key, child in world.children.items() if child is not secret})
    plan = reconcile(Situation(World(job()).observe()))
    assert token not in repr(plan) and token not in repr(world.observe())


PODS = {
    "head": [
        head(node="", **unschedulable()),
        head(**waiting("ErrImagePull", "no such image")),
        head(**ready()),
        head(**ended(0, result())),
        head(**ended(1, "boom")),
        head(**ended(2, result("wrong"))),
        head("pole-head-b", created=30, **ready(since=30)),
    ],
    "worker": [
        worker("pole-cpu-1", **ready()),
        worker("pole-cpu-2", **waiting("CrashLoopBackOff", "back-off")),
        worker("pole-cpu-3", node="", **unschedulable()),
    ],
}
STEPS = st.one_of(
    st.sampled_from([("put", pod) for pods in PODS.values() for pod in pods]),
    st.sampled_from(
        [("lose", name) for name in ("pole-head-a", "pole-head-b", "pole-cpu-1", "pole-cpu-2", "pole-cpu-3")]
    ),
    st.sampled_from([("says", state) for state in ("starting", "waiting", "training", "done")]),
    st.sampled_from(
        [
            ("edit", change)
            for change in ({"suspend": True}, {"suspend": False}, {"replicas": 3}, {"algorithm": "DQN"}, {"stop": {}})
        ]
    ),
    st.sampled_from([("after", seconds) for seconds in (1, 61, 600)]),
    st.sampled_from([("batch", kind) for kind in ("Complete", "Failed")]),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(STEPS, max_size=12), st.integers(0, 100), st.booleans())
def test_any_life_comes_to_rest_and_does_not_depend_on_the_order_of_what_is_seen(
    steps: list[tuple[str, Any]], seed: int, deadlines: bool
) -> None:
    limits = {"activeDeadlineSeconds": 300, "preRunningDeadlineSeconds": 120} if deadlines else {}
    world = World(job(**limits))
    world.settle()  # `settle` itself asserts that repeating a look does nothing
    finished = ""
    for kind, what in steps:
        match kind:
            case "put":
                world.put(json.loads(json.dumps(what)))
            case "lose" if what in world.pods:
                world.lose(what)
            case "says":
                world.says("pole-head-a", what, training={"iteration": 1}, exitCode=0 if what == "done" else None)
            case "edit":
                world.edit(**what)
            case "after":
                world.after(what)
            case "batch" if ("Job", f"{NAME}-head") in world.children:
                world.batch(what)
        assert reconcile(Situation(world.observe(random.Random(seed)))) == reconcile(Situation(world.observe()))
        assert not finished or world.phase == finished
        finished = world.phase if world.phase in ("Succeeded", "Failed") else ""
        assert len(world.status["conditions"]) == len({each["type"] for each in world.status["conditions"]})
        for condition in world.status["conditions"]:
            assert condition["reason"] in set(Reason) and condition["type"] in set(ConditionType)
        assert set(world.told) <= set(Reason)
