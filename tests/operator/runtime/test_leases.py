"""The proof that watches deliver, the canary, and the election, against a real HTTP server."""

from __future__ import annotations

import time

import pytest

from reef_operator.connection.client import ApiError
from reef_operator.main import connected
from reef_operator.options import parse
from reef_operator.runtime import leases
from reef_operator.runtime.leases import Canary, LeaderElection, WatchProof
from reef_operator.runtime.metrics import Metrics

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
JOBS = "/apis/reef.dev/v1/namespaces/ns/rltrainingjobs"


def found(version: int, uid: str = "u"):
    metadata = {"namespace": "ns", "name": "j", "uid": uid, "resourceVersion": str(version)}
    return {"kind": "RLTrainingJob", "metadata": metadata}


def lease(holder: str, version: int = 1, seconds: int = 15):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 4}
    return {"metadata": {"namespace": "ns", "name": "l", "uid": "ul", "resourceVersion": str(version)}, "spec": spec}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def proof() -> tuple[WatchProof, Clock]:
    clock = Clock()
    return WatchProof(60.0, clock), clock


def test_what_comes_by_in_time_or_before_is_no_fault():
    watch, clock = proof()
    watch.saw(found(5))
    watch.expect(found(4))
    watch.expect(found(7))
    watch.saw(found(9))  # a later state will do
    clock.now = 1000
    assert watch.overdue() == []


def test_what_does_not_come_by_is_overdue_and_further_changes_do_not_put_it_off():
    watch, clock = proof()
    watch.saw(found(5))
    watch.expect(found(6))
    clock.now = 50
    watch.expect(found(7))
    watch.saw(found(5))
    assert watch.overdue() == []
    assert watch.ages() == {"RLTrainingJob": 0, "Lease": 0}
    clock.now = 61
    assert len(watch.overdue()) == 1
    assert watch.ages() == {"RLTrainingJob": 61, "Lease": 0}, "as old as what is overdue, and no alarm for silence"
    watch.saw(found(6))
    assert watch.overdue() == []
    assert watch.ages() == {"RLTrainingJob": 0, "Lease": 0}


def test_what_a_watch_tells_is_counted_and_what_it_lists_is_not():
    watch, _ = proof()
    watch.saw(found(5), "LISTED")
    watch.saw(found(6))
    watch.saw(found(7), "DELETED")
    watch.saw(lease("me", 2) | {"kind": "Lease"})
    assert watch.delivered == {"RLTrainingJob": 2, "Lease": 1}


def test_a_fault_is_told_only_of_what_is_there(rig):
    async def test(rig) -> None:
        watch, clock = proof()
        watch.expect(found(6))
        clock.now = 61
        rig.server.on("GET", JOBS, {"message": "no"}, status=400)
        assert await watch.fault(rig.client) == ""  # nothing is known
        rig.server.on("GET", JOBS, {"items": [found(6)]}, {"items": [found(3, uid="another")]})
        await watch.fault(rig.client)
        assert "RLTrainingJob ns/j" in await watch.fault(rig.client)
        assert await watch.fault(rig.client) == ""
        assert watch.overdue() == []

    rig(test)


def test_a_namespace_that_was_closed_hides_no_fault_in_another(rig):
    async def test(rig) -> None:
        watch, clock = proof()
        closed = found(6, uid="closed")
        watch.expect(closed | {"metadata": closed["metadata"] | {"namespace": "closed"}})
        watch.expect(found(6))
        clock.now = 61
        rig.server.on("GET", JOBS.replace("/ns/", "/closed/"), {"message": "no"}, status=403)
        rig.server.on("GET", JOBS, {"items": [found(6)]})
        assert "RLTrainingJob ns/j" in await watch.fault(rig.client)

    rig(test)


def test_a_deletion_that_came_by_ends_the_matter():
    watch, clock = proof()
    watch.expect(found(6))
    watch.saw(found(7), "DELETED")
    clock.now = 1000
    assert watch.overdue() == []


def test_the_canary_makes_its_lease_and_then_changes_it(rig):
    async def test(rig) -> None:
        canary = Canary(rig.client, "ns", "l", WatchProof())
        rig.server.on("PATCH", f"{LEASES}/l", {"reason": "NotFound"}, status=404)
        rig.server.on("PATCH", f"{LEASES}/l", lease("", 8))
        rig.server.on("POST", LEASES, lease("", 7), status=201)
        assert (await canary.beat())["metadata"]["resourceVersion"] == "7"
        assert (await canary.beat())["metadata"]["resourceVersion"] == "8"

    rig(test)


def test_a_free_lease_is_taken_with_the_version_that_was_seen(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{LEASES}/l", lease("", 3))
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 4))
        await LeaderElection(rig.client, "ns", "l", "me").acquire()
        (taken,) = rig.server.asked("PATCH")
        assert taken.body["metadata"] == {"resourceVersion": "3"}
        assert taken.body["spec"]["holderIdentity"] == "me"
        assert taken.body["spec"]["leaseTransitions"] == 5

    rig(test)


def test_a_held_lease_is_not_taken_until_it_has_not_changed_for_its_time(rig):
    async def test(rig) -> None:
        election = LeaderElection(rig.client, "ns", "l", "me")
        rig.server.on("GET", f"{LEASES}/l", lease("other", 3, seconds=0))
        rig.server.on("PATCH", f"{LEASES}/l", {"reason": "Conflict", "message": "Conflict"}, status=409)
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 5))
        election._last = ("3", 10.0**12)  # just seen
        assert not await election._attempt()
        assert rig.server.asked("PATCH") == []
        election._last = ("3", 0.0)
        with pytest.raises(ApiError, match="Conflict"):  # another was faster
            await election._attempt()
        assert await election._attempt()

    rig(test)


def test_holding_ends_when_another_has_the_lease(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{LEASES}/l", lease("", 3), lease("other", 5))
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 4))
        election = LeaderElection(rig.client, "ns", "l", "me")
        assert not election.leads()
        await election.acquire()
        assert election.leads()
        await election.hold()
        assert len(rig.server.asked("PATCH")) == 1

    rig(test)


def test_who_stood_still_leads_no_more_before_it_asks(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{LEASES}/l", lease("me", 3))
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 4))
        election = LeaderElection(rig.client, "ns", "l", "me")
        await election.acquire()
        election._renewed -= leases.RENEW_WITHIN_S
        assert not election.leads()
        assert await election._attempt(take=False)
        assert election.leads()

    rig(test)


def test_what_another_has_had_meanwhile_is_not_held_again(rig):
    async def test(rig) -> None:
        rig.server.on("GET", f"{LEASES}/l", lease("me", 3), lease("", 7))  # the other has come and gone
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 4))
        election = LeaderElection(rig.client, "ns", "l", "me")
        await election.acquire()
        await election.hold()
        assert len(rig.server.asked("PATCH")) == 1

    rig(test)


def test_a_lease_that_took_long_to_get_is_renewed_before_it_counts(rig, monkeypatch):
    monkeypatch.setattr(leases, "RETRY_S", 0.01)

    async def test(rig) -> None:
        rig.server.on("GET", f"{LEASES}/l", lease("", 3), lease("me", 4))
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 4), lease("me", 5))
        election = LeaderElection(rig.client, "ns", "l", "me")
        late = iter([False, True])
        monkeypatch.setattr(election, "leads", lambda: next(late))
        await election.acquire()
        assert len(rig.server.asked("PATCH")) == 2

    rig(test)


def test_the_client_for_work_writes_for_a_leader_alone(rig):
    async def test(rig) -> None:
        credentials = rig.client._credentials
        rig.server.on("POST", "/api/v1/namespaces/ns/pods", {"made": 1}, status=201)
        options = parse(["--leader-election", "--name", "l"], {"POD_NAMESPACE": "ns"})
        async with connected(options, credentials, Metrics()) as (election, client):
            rig.server.on("GET", f"{LEASES}/l-leader", lease("", 3))
            rig.server.on("PATCH", f"{LEASES}/l-leader", lease(options.identity, 4))
            with pytest.raises(ApiError, match="another operator may be the leader"):
                await client.create("Pod", "ns", {})
            await election.acquire()
            assert await client.create("Pod", "ns", {}) == {"made": 1}
            election._renewed -= leases.RENEW_WITHIN_S
            with pytest.raises(ApiError, match="another operator may be the leader"):
                await client.create("Pod", "ns", {})
        async with connected(parse([], {}), credentials, Metrics()) as (_, client):
            assert await client.create("Pod", "ns", {}) == {"made": 1}

    rig(test)


def test_holding_outlasts_an_api_server_in_trouble_but_not_for_as_long_as_another_waits(rig, monkeypatch):
    monkeypatch.setattr(leases, "RETRY_S", 0.05)
    monkeypatch.setattr(leases, "RENEW_WITHIN_S", 2.0)

    async def test(rig) -> None:
        trouble = {"reason": "Forbidden", "message": "the authorizer does not answer"}
        rig.server.on("GET", f"{LEASES}/l", lease("me", 2))
        rig.server.on("GET", f"{LEASES}/l", trouble, trouble, status=403)
        rig.server.on("GET", f"{LEASES}/l", lease("me", 3))
        rig.server.on("PATCH", f"{LEASES}/l", lease("me", 3), lease("me", 4))
        rig.server.on("PATCH", f"{LEASES}/l", trouble, status=403)
        election = LeaderElection(rig.client, "ns", "l", "me")
        await election.acquire()
        start = time.monotonic()
        await election.hold()
        assert len(rig.server.asked("PATCH")) > 2, "it was renewed after two faults, and then tried further"
        assert time.monotonic() - start >= 2

    rig(test)


def test_release_gives_only_the_own_lease_back(rig):
    async def test(rig) -> None:
        election = LeaderElection(rig.client, "ns", "l", "me")
        rig.server.on("GET", f"{LEASES}/l", lease("other"), lease("me"))
        rig.server.on("PATCH", f"{LEASES}/l", lease(""))
        await election.release()
        assert rig.server.asked("PATCH") == []
        await election.release()
        assert rig.server.asked("PATCH")[0].body["spec"]["holderIdentity"] == ""

    rig(test)
