"""The sections and targets of TD3, DDPG, A2C, IMPALA, APPO, ES, BC, MARWIL and Ape-X."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed.measurements import (
    A2C_SCRIPTS,
    A2C_STEPS,
    APEX_ENVS,
    ASYNC_ENVS,
    ASYNC_PEERS,
    ES_WORKERS,
    OFFLINE_SCRIPTS,
    TD3_SCRIPTS,
)
from benchmarks.speed.numbers import Numbers, Spread, fastest, ratio
from benchmarks.speed.tables import row, table
from benchmarks.speed.targets import NAMES, Target

THREADS = {", one thread": 1.3, "": 1.8}  # wanted of TD3 and DDPG beside the fastest peer
SHORT = {"td3": "TD3", "ddpg": "DDPG", "impala": "IMPALA", "appo": "APPO"}
TWO_WORKERS = (0, 2)


def algorithm_targets(numbers: Numbers) -> Iterator[Target]:
    """Yield the targets."""
    for algorithm in ("td3", "ddpg"):
        for threads, wanted in THREADS.items():
            peers, reef = _with_reef(numbers, "td3", [f"{algorithm}, {peer}{threads}" for peer in TD3_SCRIPTS])
            what = f"{SHORT[algorithm]}{threads or ', threads as everyone has them'}: Reef / fastest peer"
            yield Target(what, wanted, ratio(reef, fastest(peers)))
    for steps in A2C_STEPS:
        peers, reef = _with_reef(numbers, "a2c", [f"{peer}, {steps} steps" for peer in A2C_SCRIPTS])
        yield Target(
            f"A2C, rollouts of {steps} steps, one thread: Reef / fastest peer", 2.0, ratio(reef, fastest(peers))
        )
    yield from _asynchronous_targets(numbers)
    yield Target("ES: Reef / ARS of sb3-contrib", 5.0, ratio(*numbers.rates("es", "reef, 0 workers", "sb3")))
    rates = numbers.rates("es", "reef, 2 workers", "reef, 1 workers")
    yield Target("ES: two workers / one", 1.8, ratio(*rates))
    for peer, wanted in (("bare loop", 0.9), ("rllib", 2.0)):
        rates = numbers.rates("offline", *(f"bc, {which}, learner" for which in ("reef", peer)))
        yield Target(f"BC, learner alone: Reef / {NAMES[peer]}", wanted, ratio(*rates))
    rates = numbers.rates("offline", "marwil, reef, training", "marwil, rllib, training")
    yield Target("MARWIL, training from recorded episodes: Reef / RLlib", 5.0, ratio(*rates))
    for env in APEX_ENVS:
        rates = numbers.rates("apex", f"{env}, learning", f"{env}, sampling alone")
        yield Target(f"Ape-X, {env}: sampling while it learns / sampling alone", 0.9, ratio(*rates))


def _asynchronous_targets(numbers: Numbers) -> Iterator[Target]:
    for env in ASYNC_ENVS:
        for algorithm in ASYNC_PEERS:
            name = f"{SHORT[algorithm]}, {env}"
            for workers in TWO_WORKERS:
                reef = f"{algorithm}, {env}, reef, {workers} workers"
                for peer, of_peer, wanted in (("rllib", algorithm, 4.0), ("sample_factory", "appo", 2.5)):
                    rates = numbers.rates("asynchronous", reef, f"{of_peer}, {env}, {peer}, {workers} workers")
                    yield Target(f"{name}, {workers} workers: Reef / {NAMES[peer]}", wanted, ratio(*rates))
            cases = [f"{algorithm}, {env}, reef, {workers} workers" for workers in (2, 0)]
            if env.startswith("LunarLander"):
                yield Target(f"{name}: two workers / none", 1.6, ratio(*numbers.rates("asynchronous", *cases)))


def _with_reef(numbers: Numbers, part: str, cases: list[str]) -> tuple[list[Spread | None], Spread | None]:
    """The rates of the peers, and of Reef, which is the last case."""
    *peers, reef = numbers.rates(part, *cases)
    return peers, reef


def algorithms(numbers: Numbers) -> Iterator[str]:
    """Yield the sections of RESULTS.md."""
    yield "## TD3 and DDPG"
    yield ""
    yield "As SAC; the actor and the targets of TD3 move with every second step of the critics. steps/s."
    yield ""
    columns = [(algorithm, threads) for algorithm in ("td3", "ddpg") for threads in (", one thread", "")]
    yield from table("", *(f"{SHORT[algorithm]}{threads}" for algorithm, threads in columns))
    for peer in TD3_SCRIPTS:
        yield row(NAMES[peer], *(_rate(numbers, "td3", f"{name}, {peer}{threads}") for name, threads in columns))
    yield ""
    yield "## A2C"
    yield ""
    yield "CartPole-v1, MLP 64x64 tanh, 8 environments, one gradient step for each rollout, one thread, steps/s."
    yield ""
    yield from table("", *(f"rollouts of {steps} steps" for steps in A2C_STEPS))
    for peer in A2C_SCRIPTS:
        yield row(NAMES[peer], *(_rate(numbers, "a2c", f"{peer}, {steps} steps") for steps in A2C_STEPS))
    yield ""
    yield "## IMPALA and APPO"
    yield ""
    yield "MLP 64x64 tanh that actor and critic share, 8 environments per worker, batches of 400 steps, fragments of"
    yield "50, each batch learned from once, one thread for each process: steps that were learned from per second."
    yield "RLlib is run at the fastest of its settings with this batch: its learner is in the driver, which waits up to"
    yield "0.05 s for fragments instead of polling without a pause, and its APPO has no circular buffer. It counts one"
    yield "step more for the end of each episode and fragment. Sample Factory has APPO alone, so IMPALA is compared"
    yield "with that. It uses GAE, its default, and no normalisation of returns and observations; it needs an older"
    yield "Gymnasium, with LunarLander-v2."
    yield ""
    places = [(env, workers) for env in ASYNC_ENVS for workers in TWO_WORKERS]
    yield from table("", *(f"{env}, {workers} workers" for env, workers in places))
    for algorithm, peers in ASYNC_PEERS.items():
        for peer in peers:
            cases = [f"{algorithm}, {env}, {peer}, {workers} workers" for env, workers in places]
            yield row(f"{SHORT[algorithm]}, {NAMES[peer]}", *(_rate(numbers, "asynchronous", case) for case in cases))
    yield ""
    yield "## ES"
    yield ""
    yield "CartPole-v1, one hidden layer of 16, 16 perturbed episodes for an update, 8 environments per worker, one"
    yield "thread for each process, steps/s; ARS is sb3-contrib's, the nearest peer."
    yield ""
    yield from table("", "steps/s")
    yield row("ARS", _rate(numbers, "es", "sb3"))
    for workers in ES_WORKERS:
        yield row(f"Reef, {workers} workers", _rate(numbers, "es", f"reef, {workers} workers"))
    yield ""
    yield from _offline(numbers)
    yield from _apex(numbers)


def _offline(numbers: Numbers) -> Iterator[str]:
    yield "## BC and MARWIL"
    yield ""
    yield "Recorded rows of CartPole-v1 learned from per second, MLP 64x64 tanh (RLlib's default is 256x256), batches"
    yield "of 2,000, one thread. Alone, RLlib's MARWIL is given the returns; Reef's computes the critic's values for"
    yield "them. Training is all of `train()`, each from its own recording of the same episodes; RLlib's is timed over"
    yield "whole passes, for each of which it starts its pipeline of Ray Data again. It counts an artificial last row"
    yield "for each recorded one too, which its loss masks: half of its rows."
    yield ""
    yield from table("", "BC, learner alone", "MARWIL, learner alone", "BC, training", "MARWIL, training")
    for peer in OFFLINE_SCRIPTS:
        kinds = [f"{algorithm}, {peer}, {kind}" for kind in ("learner", "training") for algorithm in ("bc", "marwil")]
        yield row(NAMES[peer], *(_rate(numbers, "offline", case) for case in kinds))
    yield ""


def _apex(numbers: Numbers) -> Iterator[str]:
    yield "## Ape-X"
    yield ""
    yield "One worker with 8 environments, a learner with Ape-X's default ratio of learned to sampled steps (1), one"
    yield "thread for each process: steps that were sampled per second. Where steps sleep for 0.5 ms, cores are left."
    yield ""
    yield from table("", *APEX_ENVS)
    for name in ("sampling alone", "learning"):
        yield row(name, *(_rate(numbers, "apex", f"{env}, {name}") for env in APEX_ENVS))
    yield ""


def _rate(numbers: Numbers, part: str, case: str) -> str:
    found = numbers.rate(part, case)
    return found.text() if found else "-"
