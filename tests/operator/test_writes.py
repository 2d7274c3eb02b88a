"""How often a job's life is written to the API server, pinned: what grows here grows for every job of a cluster."""

from __future__ import annotations

from collections import Counter

from job_objects import World, ended, head, job, ready, result, waiting, worker

from reef_operator.model import Plan


class Ledger(World):
    """A world that counts what its plans write."""

    def __init__(self) -> None:
        super().__init__(job())
        self.written: Counter[str] = Counter()

    def step(self) -> Plan:
        plan = super().step()
        self.written.update(f"{type(action).__name__} {action.kind}" for action in plan.actions)
        self.written["status"] += plan.status is not None
        self.written["Event"] += len(plan.events)
        return plan

    def since(self) -> Counter[str]:
        """What was written since the last call."""
        taken, self.written = +self.written, Counter()
        return taken


OBJECTS = ("ConfigMap", "Secret", "Service", "NetworkPolicy", "Job")


def test_writes_of_a_job_from_its_creation_to_its_end() -> None:
    world = Ledger()
    world.settle()
    assert world.since() == Counter({f"Create {kind}": 1 for kind in OBJECTS} | {"status": 1, "Event": 0})
    world.put(head(node="", phase="Pending"))
    assert world.since() == Counter({"status": 1})
    world.put(head(**waiting("ContainerCreating")))  # it has a place; then its workers have a Deployment
    assert world.since() == Counter({"Create Deployment": 1, "status": 2, "Event": 1})
    world.put(worker("pole-cpu-1"), worker("pole-cpu-2"))
    world.put(head(**ready()), worker("pole-cpu-1", **ready()), worker("pole-cpu-2", **ready()))
    world.since()
    world.says("pole-head-a", "training", training={"iteration": 1})
    assert world.since() == Counter({"status": 1, "Event": 1})
    world.settle()
    assert world.since() == Counter()
    world.says("pole-head-a", "training", training={"iteration": 2})
    assert world.since() == Counter({"status": 1})
    world.put(head(**ended(0, result())))
    assert world.since() == Counter({"Delete Deployment": 1, "status": 2, "Event": 1})  # its end; its workers go
    world.lose("pole-cpu-1", "pole-cpu-2")
    world.settle()
    assert world.since() == Counter()


def test_a_pod_that_is_replaced_costs_two_statuses() -> None:
    world = Ledger()
    world.settle()
    world.put(head(**ready()), worker("pole-cpu-1", **ready()), worker("pole-cpu-2", **ready()))
    world.says("pole-head-a", "training", training={"iteration": 1})
    world.since()
    world.lose("pole-cpu-2")
    assert world.since() == Counter({"status": 1})
    world.put(worker("pole-cpu-3", **ready()))
    assert world.since() == Counter({"status": 1})
