"""Failures of actors, with real processes that are really killed."""

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest
import ray
from ray.exceptions import RayActorError

from reef.distributed.actor_group import ActorGroup
from reef.distributed.failure_policy import FaultTolerance, History
from reef.distributed.failures import START, Failure
from reef.distributed.slot import NEVER, ActorSpec, Slot, startable
from reef.errors import EXIT_FAILED, EXIT_WRONG_USE, WorkerError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.timeout(120)]


@pytest.fixture
def make():
    groups: list[ActorGroup] = []

    def make_group(
        count: int = 2,
        *,
        arguments=None,
        options=None,
        together=False,
        on_entered=None,
        room=None,
        patience_s=None,
        mailbox=False,
        **settings,
    ):
        spec = ActorSpec(
            name="fake worker",
            target="ray_fakes:Fake",
            arguments=lambda index, recreated: {"index": index, "recreated": recreated, **(arguments or {})},
            options=options if callable(options) else lambda _: {"num_cpus": 0, **(options or {})},
            work={"sample": "sample_timeout_s"},
            has_mailbox=mailbox,
        )
        settings = {"delay_between_worker_restarts_s": 0.0, "request_timeout_s": 30.0} | settings
        group = ActorGroup(
            spec,
            count,
            FaultTolerance(**settings),
            together=together,
            on_entered=on_entered or (lambda *_: None),
            room=room,
            patience_s=1.0 if room else patience_s,
        )
        groups.append(group)
        return group

    yield make_group
    for group in groups:
        group.stop()


def until_healthy(group: ActorGroup, count: int, limit_s: float = 30.0) -> float:
    started = time.monotonic()
    while len(group.healthy) < count:
        assert time.monotonic() - started < limit_s, f"only {group.healthy} came back"
        time.sleep(0.05)
        group.heal()
    return time.monotonic() - started


def until(condition, limit_s: float = 30.0) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < limit_s
        time.sleep(0.05)


def until_dead(pid: int, limit_s: float = 10.0) -> None:
    started = time.monotonic()
    while is_alive(pid):
        assert time.monotonic() - started < limit_s, f"process {pid} is still there"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go between opening and reading
        return False


def test_answers_come_in_the_order_of_indices(make):
    group = make(3)
    assert list(group.call_all("sample", timeout_s=30.0).items()) == [(1, 1), (2, 2), (3, 3)]
    group.send("set", "weights")
    assert set(group.call_all("get", timeout_s=30.0).values()) == {"weights"}


def test_by_default_the_workers_own_traceback_ends_the_run(make):
    group = make()
    with pytest.raises(WorkerError) as caught:
        group.call_all("sample", (), (), (2,), timeout_s=30.0)
    text = str(caught.value)
    assert text.startswith("fake worker 2 failed in sample(): RuntimeError: reward of worker 2 is broken\n")
    assert "recreate_failed_workers=True" in text
    assert "ray_fakes.py" in text and "raise RuntimeError" in text
    assert "ray/_private" not in text and "\x1b" not in text
    assert caught.value.exit_code == EXIT_FAILED


def test_by_default_a_killed_process_ends_the_run_within_seconds(make):
    group = make()
    group.call_all("get", timeout_s=30.0)
    os.kill(group.process(1).pid, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(WorkerError, match=r"fake worker 1 failed in sample\(\): its process \d+ died"):
        group.call_all("sample", timeout_s=30.0)
    assert time.monotonic() - started < 15.0


@pytest.mark.parametrize("together", [False, True])
def test_who_calls_again_after_the_end_is_told_why_and_does_not_wait(make, together):
    group = make(2, together=together)
    with pytest.raises(WorkerError, match="its process"):
        group.call_all("sample", (1,), timeout_s=30.0)
    for call in (group.call_all, lambda method, timeout_s: group.ready(timeout_s)):
        with pytest.raises(WorkerError, match=r"(?s)fake worker 1 failed in sample\(\).*no actor is started again"):
            call("get", timeout_s=1.0)
    assert group.num_restarts == 0


@pytest.mark.parametrize(
    ("limit", "text"),
    [({"max_num_worker_restarts": 0}, "is used up"), ({"num_consecutive_worker_failures_tolerance": 0}, "in a row")],
)
def test_a_limit_that_ended_the_run_is_kept_by_later_calls(make, limit, text):
    group = make(recreate_failed_workers=True, **limit)
    with pytest.raises(WorkerError, match=text):
        group.call_all("sample", (2,), timeout_s=30.0)
    with pytest.raises(WorkerError, match="no actor is started again"):
        group.call_all("get", timeout_s=1.0)
    assert (group.num_restarts, group.healthy) == (0, [1])


def test_who_calls_a_group_that_was_stopped_is_told_so(make):
    group = make(recreate_failed_workers=True)
    group.call_all("sample", (2,), timeout_s=30.0)  # covered: this did not end the run
    group.stop()
    with pytest.raises(WorkerError, match="fake workers were stopped"):
        group.call_all("get", timeout_s=1.0)


def test_an_object_that_cannot_be_made_is_named_with_its_traceback(make):
    with pytest.raises(WorkerError) as caught:
        make(arguments={"broken": (1, 2)})
    assert "failed in start(): ValueError: no level" in str(caught.value)
    assert "ray_fakes.py" in str(caught.value)


@pytest.mark.parametrize("policy", ["ignore_worker_failures", "recreate_failed_workers"])
def test_when_nobody_can_be_made_there_is_nothing_to_ignore_or_to_repeat(make, policy):
    with pytest.raises(WorkerError, match=r"[Nn]one of the 2 (came up|is left)"):
        make(arguments={"broken": (1, 2)}, **{policy: True})


def test_ignoring_goes_on_until_the_last_one_dies_and_names_the_first_failure(make):
    group = make(3, ignore_worker_failures=True)
    assert group.call_all("sample", (), (), (2,), timeout_s=30.0) == {1: 1, 3: 3}
    assert group.healthy == [1, 3]
    assert group.call_all("sample", (), (), (), (3,), timeout_s=30.0) == {1: 1}
    assert group.num_restarts == 0
    with pytest.raises(WorkerError) as caught:
        group.call_all("sample", (1,), timeout_s=30.0)
    assert "none of the 3 is left" in str(caught.value)
    assert "The first failure was fake worker 2 in sample(): RuntimeError: reward of worker 2" in str(caught.value)


def test_a_replacement_has_the_same_index_and_knows_that_it_is_one(make):
    entered: list[list[int]] = []
    group = make(recreate_failed_workers=True, on_entered=lambda _, indices: entered.append(indices))
    before = group.process(2).pid
    os.kill(before, signal.SIGKILL)
    assert group.call_all("sample", timeout_s=30.0) == {1: 1}
    until_healthy(group, 2)
    assert group.call_all("where", timeout_s=30.0) == {1: (1, False), 2: (2, True)}
    assert group.num_restarts == 1 and group.process(2).pid != before
    assert sorted(index for indices in entered for index in indices) == [1, 2, 2] and entered[-1] == [2]


def test_when_all_die_the_next_call_waits_for_a_replacement(make):
    group = make(recreate_failed_workers=True)
    for index in group.healthy:
        os.kill(group.process(index).pid, signal.SIGKILL)
    assert group.call_all("sample", timeout_s=30.0)
    until_healthy(group, 2)
    assert group.num_restarts == 2


def test_a_hanging_worker_is_cut_off_and_its_process_ends(make):
    group = make(ignore_worker_failures=True)
    hanging = group.process(2).pid
    started = time.monotonic()
    assert group.call_all("sample", (), (2,), timeout_s=0.5) == {1: 1}
    assert 0.4 < time.monotonic() - started < 15.0
    assert "no answer within 0.5 s (sample_timeout_s)" in group.first_failure.error
    until_dead(hanging)


@pytest.mark.parametrize("policy", ["ignore_worker_failures", "recreate_failed_workers"])
def test_after_a_failure_a_process_that_hangs_is_found_before_work_goes_to_it(make, policy):
    group = make(3, worker_health_probe_timeout_s=1.0, **{policy: True})
    assert len(group.call_all("sample", timeout_s=30.0)) == 3
    os.kill(group.process(1).pid, signal.SIGKILL)
    assert group.call_all("sample", timeout_s=30.0) == {2: 2, 3: 3}
    os.kill(hanging := group.process(2).pid, signal.SIGSTOP)
    started = time.monotonic()
    assert group.call_all("sample", timeout_s=15.0)[3] == 3
    assert 0.9 < time.monotonic() - started < 10.0
    until_dead(hanging)
    if policy == "recreate_failed_workers":
        until_healthy(group, 3)
    else:
        assert group.healthy == [3]


def test_a_process_that_hangs_before_the_first_call_is_named(make):
    group = make(2, worker_health_probe_timeout_s=1.0)
    os.kill(group.process(2).pid, signal.SIGSTOP)
    with pytest.raises(WorkerError, match=r"2 failed in ping\(\): .* within 1 s \(worker_health_probe_timeout_s\)"):
        group.call_all("sample", timeout_s=60.0)


def test_a_worker_at_work_is_not_asked_for_a_sign_of_life(make):
    group = make(3, recreate_failed_workers=True, worker_health_probe_timeout_s=0.5)
    group.request(1, "nap", 2.0)
    group.request(2, "sample", (2,))
    answers: list[int] = []
    deadline = time.monotonic() + 15.0
    while not answers and time.monotonic() < deadline:
        answers += [value for _, value in group.ready(1.0)]
    assert answers == [1] and group.num_restarts == 1


def test_with_a_mailbox_a_process_that_stands_still_is_found_beside_one_that_works_for_longer(make):
    group = make(3, ignore_worker_failures=True, worker_health_probe_timeout_s=2.0, mailbox=True)
    os.kill(hanging := group.process(2).pid, signal.SIGSTOP)
    started = time.monotonic()
    naps = {1: (5.0,), 2: (5.0,), 3: (0.0,)}
    assert group.call_some("nap", naps, timeout_s=60.0) == {1: 1, 3: 3}
    assert time.monotonic() - started < 20.0
    assert "no answer within 2 s (worker_health_probe_timeout_s)" in group.first_failure.error
    until_dead(hanging)


def test_requests_are_bounded_and_answers_come_as_they_are_ready(make):
    group = make(max_requests_in_flight=2)
    assert group.request(1, "nap", 0.0)
    assert group.request(1, "nap", 0.0)
    assert not group.request(1, "nap", 0.0)
    assert group.request(2, "nap", 0.6)
    answers: list[int] = []
    while len(answers) < 3:
        answers += [value for _, value in group.ready(10.0)]
    assert answers == [1, 1, 2]
    assert group.ready(10.0) == []
    assert group.request(1, "nap", 0.0)


def test_of_many_answers_some_are_taken_at_a_time_the_oldest_requests_first(make):
    group = make(3)
    for index in (3, 1, 2):
        assert group.request(index, "nap", 0.0)
    until(lambda: len(ray.wait(group_refs(group), num_returns=3, timeout=0)[0]) == 3)
    answers = [index for index, _ in group.ready(10.0, most=1)]
    assert group.request(3, "nap", 0.0), "the newest request is now of the one that was first"
    while len(answers) < 4:
        found = group.ready(10.0, most=2)
        assert 1 <= len(found) <= 2
        answers += [index for index, _ in found]
    assert answers == [3, 1, 2, 3]


def group_refs(group: ActorGroup) -> list:
    return [ref for slot in group._slots.values() for ref in slot.in_flight]


def test_requests_survive_death_and_hanging(make):
    group = make(3, recreate_failed_workers=True, request_timeout_s=1.0)
    for index in (1, 2, 3):
        group.request(index, "sample", (1,), (2,))
        group.request(index, "sample", (), ())
    answers: list[int] = []
    started = time.monotonic()
    while group.num_restarts < 2:
        answers += [index for index, _ in group.ready(0.2)]
        assert time.monotonic() - started < 20.0
    assert answers == [3, 3]  # what the dead ones still had to do is forgotten
    until_healthy(group, 3)
    assert group.request(1, "sample") and group.request(2, "sample")


def test_the_restart_budget_of_an_actor_is_kept(make):
    group = make(recreate_failed_workers=True, max_num_worker_restarts=1)
    group.call_all("sample", (2,), timeout_s=30.0)
    until_healthy(group, 2)
    with pytest.raises(WorkerError, match="max_num_worker_restarts=1 is used up"):
        group.call_all("sample", (2,), timeout_s=30.0)


def test_failures_in_a_row_are_tolerated_only_so_often(make):
    group = make(recreate_failed_workers=True, num_consecutive_worker_failures_tolerance=1)
    group.call_all("sample", (), (), (2,), timeout_s=30.0)
    until_healthy(group, 2)
    group.call_all("sample", timeout_s=30.0)  # the worker succeeds: the row is over
    group.call_all("sample", (), (), (2,), timeout_s=30.0)
    until_healthy(group, 2)
    expected = "2 failures in a row exceed num_consecutive_worker_failures_tolerance=1"
    with pytest.raises(WorkerError, match=expected) as caught:
        group.call_all("sample", (), (), (2,), timeout_s=30.0)
    assert str(caught.value).endswith("The first failure was fake worker 2 in sample(): the same error")
    assert str(caught.value).count("Traceback") == 1


@pytest.mark.parametrize(
    ("how", "error", "code"),
    [
        (((), (), (), (), (1, 2)), "no such level", EXIT_WRONG_USE),  # the environment's own
        (((), (), (1, 2)), "reward of worker [12] is broken", EXIT_FAILED),  # of any code, such as a model's
    ],
)
def test_what_is_wrong_for_everybody_is_not_tried_for_ever(make, how, error, code):
    """An error that was raised ends the run once a replacement meets it again and nobody ever got through."""
    group = make(recreate_failed_workers=True)
    with pytest.raises(WorkerError, match=f"(?s){error}.*started again and failed again") as caught:
        while True:
            group.call_all("sample", *how, timeout_s=30.0)
    assert caught.value.exit_code == code
    assert group.num_restarts <= 2


def test_what_is_wrong_now_and_then_is_tried_again(make):
    group = make(recreate_failed_workers=True)
    group.call_all("sample", timeout_s=30.0)
    for _ in range(3):
        assert group.call_all("sample", (), (), (), (), (1,), timeout_s=30.0) == {2: 2}
        until_healthy(group, 2)
    assert "fake worker 1 failed in sample(): EnvironmentError: no such level" in group.problem
    group.call_all("sample", timeout_s=30.0)
    assert group.problem == ""


def test_restarts_of_one_actor_begin_at_once_and_then_keep_their_distance(make):
    group = make(recreate_failed_workers=True, delay_between_worker_restarts_s=60.0)
    pauses = []
    for _ in range(4):
        last_start = group._slots[2].started_at
        group.call_all("sample", (2,), timeout_s=30.0)
        until_healthy(group, 2)
        pauses.append(group._slots[2].started_at - last_start)
    assert group.num_restarts == 4
    assert pauses[2] >= 2.0
    assert 4.0 <= pauses[3] < 30.0, "far from the longest pause"


def test_pauses_grow_to_the_delay_and_end_with_an_actor_that_lasts():
    slot, due = Slot(1), []
    for lasted in (0.1, 0.1, 0.1, 0.1, 0.1, 7.0, 0.1, 0.1):
        slot.actor, slot.started_at = MagicMock(), time.monotonic() - lasted
        with patch("reef.distributed.slot.ray.kill"):
            slot.take_down(5.0)
        due.append(round(slot.due - slot.started_at, 3))
    assert due == [0.0, 1.0, 2.0, 4.0, 5.0, 0.0, 0.0, 1.0]


def test_thousands_of_quick_ends_pause_for_the_delay():
    slot = Slot(1, quick_ends=5000)
    slot.actor, slot.started_at = MagicMock(), time.monotonic()
    with patch("reef.distributed.slot.ray.kill"):
        slot.take_down(5.0)
    assert slot.due == slot.started_at + 5.0


@pytest.mark.parametrize("together", [False, True])
def test_a_group_does_not_stand_idle_without_an_actor(make, together):
    group = make(recreate_failed_workers=True, delay_between_worker_restarts_s=60.0, together=together)
    for _ in range(3):
        for slot in group._slots.values():
            slot.quick_ends = 10  # the next pause is the longest
        for index in group.healthy:
            os.kill(group.process(index).pid, signal.SIGKILL)
        started = time.monotonic()
        assert group.call_all("sample", timeout_s=30.0)
        assert time.monotonic() - started < 30.0, "half of the pause"


def test_an_actor_that_cannot_come_up_is_tried_with_pauses_even_where_it_is_the_only_one():
    failed = Failure(1, START, "ValueError: no such level")
    slot = Slot(1, history=History(failure=failed), due=time.monotonic() + 60.0)
    assert startable([slot], together=False) == []
    slot.history.failure = Failure(1, "sample", "killed")
    assert startable([slot, Slot(2, due=slot.due + 1)], together=False) == [slot]
    assert startable([slot, Slot(2, actor=object())], together=False) == []


def test_a_replacement_that_cannot_come_up_in_time_counts_as_a_failure(make):
    group = make(recreate_failed_workers=True, worker_restore_timeout_s=8.0, max_num_worker_restarts=1)
    group._spec = replace(group._spec, options=lambda _: {"resources": {"there is none": 1}})
    group.call_all("sample", (2,), timeout_s=30.0)
    with pytest.raises(WorkerError, match=r"no answer within 8 s \(worker_restore_timeout_s\)"):
        until_healthy(group, 2)


def test_who_has_no_room_waits_for_it_and_who_has_none_any_more_makes_room(make):
    room = [1]
    group = make(2, recreate_failed_workers=True, room=lambda count: min(room[0], count))
    assert (group.healthy, group.num_waiting) == ([1], 1)
    room[0] = 3
    until_healthy(group, 2)
    group.resize(3)
    until_healthy(group, 3)
    assert (group.size, group.num_waiting) == (3, 0)
    process = group.process(3).pid
    room[0] = 2
    until(lambda: group.call_all("sample", timeout_s=30.0) == {1: 1, 2: 2})
    until_dead(process)
    assert group.num_waiting == 1
    room[0] = 3
    until_healthy(group, 3)
    assert group.call_all("where", timeout_s=30.0)[3] == (3, True)
    assert group.num_restarts == 0 and group.first_failure is None


def test_a_group_follows_the_wanted_number_both_ways(make):
    group = make(3, recreate_failed_workers=True, room=lambda count: 3)
    until_healthy(group, 3)
    living = group.process(1).pid
    group.resize(1)
    assert (group.size, group.num_waiting) == (1, 0)
    until(lambda: group.call_all("sample", timeout_s=30.0).keys() == {1})
    group.resize(2)
    until_healthy(group, 2)
    assert (group.size, group.num_waiting, group.process(1).pid) == (2, 0, living)
    assert group.num_restarts == 0 and group.first_failure is None
    looked_at = group._looked_at
    group.resize(2)
    assert group._looked_at == looked_at, "who is asked for what there is looks no sooner"


def test_of_those_that_are_too_many_the_dead_go_before_the_living(make):
    room = [2]
    group = make(2, recreate_failed_workers=True, room=lambda count: room[0])
    living, dead = group.process(2).pid, group._slots[1].actor
    os.kill(group.process(1).pid, signal.SIGKILL)
    with pytest.raises(RayActorError):  # Ray knows it, the group does not
        ray.get(dead.call.remote("ping"), timeout=30.0)
    room[0], group._looked_at = 1, NEVER  # the room is gone before the death is noticed
    until(lambda: group.call_all("sample", timeout_s=30.0) == {2: 2} and group.num_waiting == 1)
    assert group.process(2).pid == living
    assert group.num_restarts == 0, "there was no room for another one"
    assert group.problem == "", "nor is it missed"


@pytest.mark.parametrize("knows_room", [True, False])  # as that of evaluation workers does not
def test_a_start_without_room_is_no_failure_while_others_work(make, caplog, knows_room):
    group = make(
        2,
        options=lambda index: {"num_cpus": 0, "resources": {"there is none": 1} if index == 2 else {}},
        recreate_failed_workers=True,
        num_consecutive_worker_failures_tolerance=0,
        room=(lambda count: count) if knows_room else None,
        patience_s=1.0,
    )
    assert group.healthy == [1]
    group._settings = replace(group._settings, worker_restore_timeout_s=2.0)
    for _ in range(2):
        caplog.clear()
        until(lambda: group.heal() or "fake worker 2 did not find room within 2 s" in caplog.text)
    assert (group.num_restarts, group.first_failure) == (0, None)


def test_losing_many_at_once_is_no_row_of_failures_where_nodes_come_and_go(make):
    group = make(3, recreate_failed_workers=True, num_consecutive_worker_failures_tolerance=1, room=lambda count: count)
    group.call_all("get", timeout_s=30.0)
    assert group.call_all("sample", (1, 2), timeout_s=30.0) == {3: 3}
    until_healthy(group, 3)
    assert group.call_all("sample", (1,), timeout_s=30.0) == {2: 2, 3: 3}, "the second in its row"
    until_healthy(group, 3)
    with pytest.raises(WorkerError, match="2 failures in a row"):
        group.call_all("sample", (1,), timeout_s=30.0)


def test_an_environment_that_breaks_at_start_is_repeated_while_others_go_on(make, tmp_path: Path):
    group = make(recreate_failed_workers=True, arguments={"broken": (2,), "folder": str(tmp_path)})
    assert group.call_all("sample", timeout_s=30.0) == {1: 1}
    (tmp_path / "mended").touch()
    until_healthy(group, 2)
    assert group.call_all("where", timeout_s=30.0)[2] == (2, True)


def test_a_group_that_works_together_falls_and_rises_together(make, caplog):
    entered: list[list[int]] = []
    group = make(recreate_failed_workers=True, together=True, on_entered=lambda _, indices: entered.append(indices))
    group.call_all("get", timeout_s=30.0)
    os.kill(group.process(2).pid, signal.SIGKILL)
    with caplog.at_level(logging.WARNING):
        assert group.call_all("sample", timeout_s=30.0) == {1: 1, 2: 2}  # the round is repeated as a whole
    assert entered == [[1, 2], [1, 2]]
    assert group.num_restarts == 2
    assert "fake worker 2 failed in sample()" in caplog.text


def test_a_lost_node_is_noticed_and_its_worker_moves(make, ray_cluster):
    node = ray_cluster.add_node(num_cpus=1, resources={"pool": 1})
    group = make(1, recreate_failed_workers=True, options={"resources": {"pool": 1}})
    assert group.call_all("sample", timeout_s=30.0) == {1: 1}
    ray_cluster.remove_node(node, allow_graceful=False)
    node = ray_cluster.add_node(num_cpus=1, resources={"pool": 1})
    started = time.monotonic()
    assert group.call_all("sample", timeout_s=60.0) == {1: 1}
    assert time.monotonic() - started < 25.0
    assert group.num_restarts == 1
    group.stop()
    ray_cluster.remove_node(node)
