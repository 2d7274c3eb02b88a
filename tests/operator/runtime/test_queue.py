"""The work queue: order, deduplication, one reconcile of a key at a time, backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef_operator.connection.limits import Backoff
from reef_operator.runtime.queue import SHARE, Key, Turns, Urgency, WorkQueue

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(limited())


def quick() -> WorkQueue:
    return WorkQueue(Backoff(first=0.01, limit=0.08, jitter=0))


def test_keys_come_in_order_and_once():
    async def test() -> None:
        queue = quick()
        for key in (A, B, A, C, B):
            queue.add(key)
        assert queue.depth() == 3
        assert [await queue.get() for _ in range(3)] == [A, B, C]
        assert queue.depth() == 0

    run(test)


def test_what_is_not_urgent_waits_for_what_is():
    async def test() -> None:
        queue = quick()
        queue.add(A, Urgency.PROGRESS)
        queue.add(B, Urgency.PROGRESS)
        queue.add(C)
        queue.add(B)  # it has become urgent
        queue.add(C, Urgency.PROGRESS)  # it stays so
        assert queue.depth() == 3
        assert [await queue.get() for _ in range(3)] == [C, B, A]
        queue.add(A, Urgency.PROGRESS)
        queue.add(A)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.05)
        queue.done(A)
        assert await queue.get() == A
        assert queue.depth() == 0

    run(test)


@pytest.mark.parametrize(
    ("added", "order"),
    [
        ("", ""),
        ("a1 a2 a3", "a1 a2 a3"),
        ("a1 a2 a3 b1", "a1 b1 a2 a3"),
        ("a1 a2 a3 b1 b2 c1", "a1 b1 c1 a2 b2 a3"),
        ("b1 a1 a2 b1 a1", "b1 a1 a2"),
    ],
)
def test_namespaces_take_turns(added: str, order: str):
    async def test() -> None:
        queue = quick()
        for name in added.split():
            queue.add((name[0], name))
        assert [(await queue.get())[1] for _ in order.split()] == order.split()
        assert queue.depth() == 0

    run(test)


def test_ten_thousand_keys_of_one_namespace_do_not_delay_another_also_after_failures_and_timers():
    async def test() -> None:
        queue = quick()
        for number in range(10_000):
            queue.add(("crowd", str(number)))
        queue.add(("small", "new"))
        queue.add_failed(("small", "failed"))
        queue.add_after(("small", "due"), 0.01)
        queue.add(("small", "progress"), Urgency.PROGRESS)
        assert [await queue.get() for _ in range(2)] == [("crowd", "0"), ("small", "new")]
        await asyncio.sleep(0.1)  # until the timers have gone off
        next_ones = [await queue.get() for _ in range(2 * SHARE)]
        assert set(next_ones[:5]) >= {("small", "failed"), ("small", "due")}, "each in its turn"
        assert ("small", "progress") in next_ones

    run(test)


async def taken(queue: WorkQueue, count: int) -> list[Key]:
    """The next keys where one in `SHARE` that work is patient."""
    return [await queue.get(patient=number % SHARE == 0) for number in range(count)]


def test_one_in_a_few_looks_is_at_a_namespace_where_nothing_is_urgent():
    async def test() -> None:
        queue = quick()
        for number in range(100):
            queue.add(("crowd", f"urgent{number}"))
            queue.add(("crowd", f"other{number}"), Urgency.PROGRESS)
            queue.add(("small", f"other{number}"), Urgency.PROGRESS)
        keys = await taken(queue, 40)
        assert sum(key[0] == "small" for key in keys) == 40 // SHARE
        assert ("crowd", "other0") not in keys, "its own have more to do"

    run(test)


def test_new_jobs_wait_for_what_happens_to_others_and_not_for_their_progress():
    async def test() -> None:
        queue = quick()
        queue.add(A, Urgency.PROGRESS)
        queue.add(B, Urgency.NEW)
        queue.add(C)
        assert [await queue.get() for _ in range(3)] == [C, B, A]

    run(test)


def test_new_jobs_and_the_progress_of_others_share_what_a_crowd_leaves():
    async def test() -> None:
        queue = quick()
        for number in range(100):
            queue.add(("crowd", f"changed{number}"))
            queue.add(("many", f"new{number}"), Urgency.NEW)
            queue.add(("small", f"progress{number}"), Urgency.PROGRESS)
        places = [key[0] for key in await taken(queue, 80)]
        assert [places.count(each) for each in ("crowd", "many", "small")] == [60, 10, 10]

    run(test)


def test_progress_never_takes_all_that_work():
    async def test() -> None:
        queue = quick()
        queue.add(A, Urgency.PROGRESS)
        hasty = asyncio.create_task(queue.get(patient=False))
        await asyncio.sleep(0.05)
        assert not hasty.done()
        queue.add(B, Urgency.NEW)
        assert await asyncio.wait_for(hasty, 1) == B
        assert await queue.get() == A

    run(test)


KEYS = st.tuples(st.sampled_from("abc"), st.sampled_from("12345"))


@given(st.lists(st.one_of(st.tuples(st.just("add"), KEYS), st.tuples(st.just("drop"), KEYS), st.just("pop"))))
def test_turns_lose_nothing_double_nothing_and_pass_over_no_namespace(steps: list[tuple[str, Key] | str]):
    turns, waiting = Turns(), list[Key]()
    passed_over = dict[str, set[str]]()  # by namespace that waits: those that had a turn since it waits or had its own
    for step in steps:
        if step == "pop":
            assert bool(turns) == bool(waiting)
            key = turns.pop()
            if key is None:
                continue
            own = [each for each in waiting if each[0] == key[0]]
            assert key == own[0], "the first of its namespace"
            waiting.remove(key)
            del passed_over[key[0]]
            for others in passed_over.values():
                assert key[0] not in others, "twice before another that waits"
                others.add(key[0])
        elif step[0] == "add":
            turns.add(step[1])
            waiting += [step[1]] if step[1] not in waiting else []
        else:
            turns.discard(step[1])
            waiting = [each for each in waiting if each != step[1]]
        passed_over = {namespace: passed_over.get(namespace, set()) for namespace, _ in waiting}
        assert all((key in turns) == (key in waiting) for key in waiting)


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards_and_not_before():
    async def test() -> None:
        queue = quick()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        queue.add(A)
        queue.add(B)
        assert await queue.get() == B  # not A: that would be two at once
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.05)
        queue.done(A)
        assert await queue.get() == A
        queue.done(A)
        assert queue.depth() == 0

    run(test)


def test_never_two_of_one_key_at_once_with_many_workers():
    async def test() -> None:
        queue, busy, seen = quick(), set[Key](), list[Key]()

        async def handle(key: Key) -> None:
            assert key not in busy, "two at once"
            busy.add(key)
            await asyncio.sleep(0.002)
            busy.discard(key)
            seen.append(key)

        workers = [asyncio.create_task(queue.work(handle)) for _ in range(8)]
        for _ in range(50):
            for key in (A, B, C):
                queue.add(key)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        for worker in workers:
            worker.cancel()
        assert set(seen) == {A, B, C}
        assert 10 < len(seen) < 150  # worked on all the time, and additions were merged

    run(test)


def test_add_after_waits_and_the_earliest_wish_counts():
    async def test() -> None:
        queue, clock = quick(), asyncio.get_running_loop().time
        start = clock()
        queue.add_after(A, 5)
        queue.add_after(A, 0.05)
        queue.add_after(A, 3)
        assert queue.depth() == 0
        assert await queue.get() == A
        assert 0.045 <= clock() - start < 1
        queue.done(A)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 0.05)

    run(test)


def test_failures_back_off_up_to_a_limit_and_success_forgets_them():
    async def test() -> None:
        queue = quick()
        assert [queue.add_failed(A) for _ in range(5)] == [0.01, 0.02, 0.04, 0.08, 0.08]
        assert queue.add_failed(B) == 0.01  # its own count
        queue.succeeded(A)
        assert queue.add_failed(A) == 0.01

    run(test)


def test_a_failing_handler_is_tried_again_and_others_go_on():
    async def test() -> None:
        queue, seen = quick(), list[Key]()

        async def handle(key: Key) -> None:
            seen.append(key)
            if key == A and seen.count(A) < 3:
                raise RuntimeError("no")

        worker = asyncio.create_task(queue.work(handle))
        queue.add(A)
        queue.add(B)
        while seen.count(A) < 3:
            await asyncio.sleep(0.005)
        worker.cancel()
        assert seen == [A, B, A, A]

    run(test)


def test_forgetting_drops_the_timer():
    async def test() -> None:
        queue = quick()
        queue.add_after(A, 0.01)
        queue.forget(A)
        await asyncio.sleep(0.05)
        assert queue.depth() == 0

    run(test)


def test_age_is_that_of_the_oldest_key_that_waits():
    async def test() -> None:
        queue = quick()
        assert queue.age() == 0
        queue.add(A)
        await asyncio.sleep(0.3)
        queue.add(B)
        assert 0.29 <= queue.age() < 5
        await queue.get()
        assert queue.age() < 0.29

    run(test)
