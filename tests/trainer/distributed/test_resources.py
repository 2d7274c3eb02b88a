"""The arithmetic of resources, and where processes are placed."""

import os
import re
import signal
from typing import Any

import pytest
from ray.util import placement_group_table

from reef.algorithms.ppo import PPOConfig
from reef.distributed import resources
from reef.distributed.resources import Placement, check_resources, demands, missing, worker_bundle
from reef.errors import ResourceError
from reef.run.process.deadline import Overdue
from reef.run.signals import StopSignals


def config(**settings: Any) -> PPOConfig:
    made = PPOConfig()
    made.update_from_dict({"env": "CartPole-v1", "num_rollout_workers": 4} | settings)
    return made


def test_the_sum_is_written_out_with_its_keys():
    asked = demands(config(), with_driver=True)
    assert list(missing(asked, {"CPU": 2.0})) == [
        "driver 1 x num_cpus_for_local_worker 1 + num_rollout_workers 4 x num_cpus_per_worker 1 = 5 CPUs, "
        "the cluster has 2"
    ]
    assert list(missing(asked, {"CPU": 5.0})) == []


def test_every_setting_of_cpus_counts():
    settings = {"num_cpus_for_local_worker": 3, "num_cpus_per_worker": 2}
    asked = demands(config(num_learner_workers=2, num_cpus_per_learner_worker=1.5, **settings), with_driver=True)
    assert list(missing(asked, {"CPU": 1.0})) == [
        "driver 1 x num_cpus_for_local_worker 3 + num_rollout_workers 4 x num_cpus_per_worker 2 "
        "+ num_learner_workers 2 x num_cpus_per_learner_worker 1.5 = 14 CPUs, the cluster has 1"
    ]


def test_fake_gpus_are_not_asked_of_the_cluster():
    settings = {"num_gpus_per_worker": 1, "num_learner_workers": 2, "num_gpus_per_learner_worker": 1}
    assert list(missing(demands(config(_fake_gpus=True, **settings), with_driver=True), {"CPU": 9.0})) == []
    assert len(list(missing(demands(config(**settings), with_driver=True), {"CPU": 9.0}))) == 1


def test_every_resource_that_is_missing_is_named():
    asked = demands(
        config(
            num_gpus_per_worker=0.25,
            custom_resources_per_worker={"simulator": 1},
            evaluation_num_workers=1,
            evaluation_interval=1,
            num_learner_workers=2,
            num_gpus_per_learner_worker=1,
        )
    )
    texts = list(missing(asked, {"CPU": 7.0}))
    assert len(texts) == 2
    assert texts[0] == (
        "num_rollout_workers 4 x num_gpus_per_worker 0.25 + evaluation_num_workers 1 x num_gpus_per_worker 0.25 "
        "+ num_learner_workers 2 x num_gpus_per_learner_worker 1 = 3.25 GPUs, the cluster has 0"
    )
    assert texts[1].endswith("= 5 simulator, the cluster has 0")
    assert "custom_resources_per_worker['simulator'] 1" in texts[1]


def test_processes_that_reserve_nothing_need_nothing():
    assert demands(config(num_cpus_per_worker=0)) == []
    assert list(missing(demands(config(num_cpus_per_worker=0.5)), {"CPU": 2.0})) == []


def test_an_evaluation_counts_its_own_workers_only():
    settings = config(evaluation_num_workers=3).evaluation_settings()
    assert [(demand.count, demand.count_key) for demand in demands(settings)] == [(3, "evaluation_num_workers")]


@pytest.mark.parametrize("interval", [None, 1])
def test_evaluation_workers_that_are_never_started_count_only_where_a_trial_reserves_them(interval):
    settings = config(evaluation_num_workers=3, evaluation_interval=interval)
    found = [{demand.count_key for demand in demands(settings, with_driver=trial)} for trial in (False, True)]
    assert ["evaluation_num_workers" in keys for keys in found] == [interval is not None, True]


@pytest.mark.ray
def test_a_cluster_that_is_too_small_is_refused_with_what_to_change(ray_cluster):
    with pytest.raises(ResourceError) as caught:
        check_resources(config(num_rollout_workers=9))
    assert "= 9 CPUs, the cluster has 4. Lower num_rollout_workers" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    check_resources(config())


@pytest.mark.ray
@pytest.mark.parametrize("strategy", ["PACK", "STRICT_SPREAD"])
def test_room_is_reserved_or_the_wait_ends_with_what_was_waited_for(ray_cluster, strategy):
    bundles = [worker_bundle(config(num_cpus_per_worker=0.5))] * 2
    if strategy == "STRICT_SPREAD":  # two nodes are needed, there is one
        with pytest.raises(
            ResourceError, match=r"no room within 0\.5 s for 2 processes of {'CPU': 0\.5} each"
        ) as caught:
            Placement(bundles, strategy, wait_s=0.5)
        free = r"Free in the cluster: CPU 4, memory \d+\.\d GiB, object_store_memory 0\.\d GiB\. Add nodes"
        assert re.search(free, str(caught.value))
        return
    placement = Placement(bundles, strategy, wait_s=10.0)
    options = placement.options(2)
    assert (options["num_cpus"], options["num_gpus"], options["resources"]) == (0.5, 0, {})
    assert options["scheduling_strategy"].placement_group_bundle_index == 1
    placement.remove()


@pytest.mark.ray
@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"])
def test_the_placement_strategy_of_the_settings_is_asked_of_ray(ray_cluster, strategy):
    settings = config(placement_strategy=strategy, num_cpus_per_worker=0.5, worker_restore_timeout_s=10.0)
    placement = resources.reserve(settings, [worker_bundle(settings)], first=0)
    asked = placement_group_table()
    assert [group["strategy"] for group in asked.values() if group["state"] == "CREATED"] == [strategy]
    placement.remove()


@pytest.mark.ray
def test_a_wait_for_room_says_how_many_have_some_and_ends_when_the_process_is_to_end(ray_cluster, monkeypatch, caplog):
    monkeypatch.setattr(resources, "SAY_AFTER_S", 0.0)
    with pytest.raises(
        ResourceError, match=r"2 processes of {'CPU': 3\.0} each, placed PACK, of which 1 would have some"
    ):
        Placement([{"CPU": 3.0}] * 2, "PACK", wait_s=1.5)
    assert "waiting up to 1.5 s for room for 2 processes" in caplog.text
    with StopSignals(patience_s=0.5) as signals, pytest.raises(Overdue):
        os.kill(os.getpid(), signal.SIGTERM)
        Placement([{"CPU": 3.0}] * 2, "PACK", wait_s=60.0, deadline=signals.deadline)


@pytest.mark.ray
def test_a_process_that_asks_for_nothing_still_has_a_place(ray_cluster):
    placement = Placement([{}], "PACK", wait_s=10.0)
    assert placement.options(1)["num_cpus"] == 0
    placement.remove()
