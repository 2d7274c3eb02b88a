"""What Reef is to reach, as ratios of medians in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from benchmarks.speed.numbers import Numbers, fastest, ratio

MINIBATCHES = (128, 1024)
PEERS = ("rllib", "sb3", "cleanrl")
PPO_CASES = (*PEERS, "bare loop", "reef", "reef compiled")
SAC_PEERS = ("rllib", "tianshou", "torchrl", "sb3", "cleanrl")


@dataclass(frozen=True)
class Target:
    """One line of the table: the measured value has to be at least, or at most, the wanted one."""

    what: str
    wanted: float
    measured: float | None
    at_most: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """Whether it was reached; None when not measured."""
        if self.measured is None:
            return None
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted

    def row(self) -> str:
        """Return its line of the table."""
        sign = "<=" if self.at_most else ">="
        measured = "not measured" if self.measured is None else f"{self.measured:.2f}{self.unit}"
        verdict = {None: "-", True: "met", False: "**not met**"}[self.met]
        return f"| {self.what} | {sign} {self.wanted:g}{self.unit} | {measured} | {verdict} |"


def targets(numbers: Numbers) -> Iterator[Target]:
    """Yield all targets."""
    for minibatch in MINIBATCHES:
        yield from _ppo(numbers, minibatch)
    yield Target(
        "sampling alone, 128 environments: Reef / bare stepping and forward",
        0.6,
        ratio(numbers.rate("sampling", "reef"), numbers.rate("sampling", "bare loop")),
    )
    yield from _workers(numbers)
    for peer, wanted in (("rllib", 3.0), ("sb3", 1.5)):
        rates = numbers.rate("dqn", "reef"), numbers.rate("dqn", peer)
        yield Target(f"DQN: Reef / {NAMES[peer]}", wanted, ratio(*rates))
    for case, wanted in ((", one thread", 1.3), ("", 1.8)):
        reef, *peers = numbers.rates("sac", *(f"{peer}{case}" for peer in ("reef", *SAC_PEERS)))
        what = f"SAC{case or ', threads as everyone has them'}: Reef / fastest peer"
        yield Target(what, wanted, ratio(reef, fastest(peers)))
    for minibatch in MINIBATCHES:
        for case in (", one thread", ""):
            reef, *peers = numbers.rates(
                "recurrent", *(f"{peer}, minibatch {minibatch}{case}" for peer in ("reef", "rllib", "sb3"))
            )
            what = f"PPO with an LSTM, minibatch {minibatch}{case}: Reef / fastest peer"
            yield Target(what, 6.0, ratio(reef, fastest(peers)))
        reef, *peers = numbers.rates(
            "agents",
            f"reef, minibatch {minibatch}, 0 workers",
            *(f"rllib, minibatch {minibatch}, {workers} workers" for workers in (0, 1, 2)),
        )
        yield Target(f"two agents, minibatch {minibatch}: Reef / fastest RLlib", 8.0, ratio(reef, fastest(peers)))
    for kind, step_ms in (("workers", 5), ("slower workers", 20)):
        linear = ratio(*(numbers.rate("scaling", f"{workers} {kind}") for workers in (32, 1)))
        yield Target(f"IMPALA, 32 workers / 32 times one, steps of {step_ms} ms", 0.9, linear and linear / 32)
    yield Target(
        "CartPole-v1 to mean reward 450: seconds, Reef / Stable-Baselines3", 0.5, _to_reward(numbers), at_most=True
    )
    for name in ("PPO", "DQN"):
        kept = numbers.spread("callbacks", name, lambda run: run["ratios"]["empty class"])
        yield Target(f"{name} with an empty class of callbacks / without", 0.99, kept and kept.median)
    started = numbers.field("memory", "reef", "first_iteration_s")
    yield Target("process start to end of first iteration", 3.0, started and started.median, at_most=True, unit=" s")
    for killed, wanted in ((1, 3.0), (2, 6.0)):
        again = numbers.spread("restart", f"{killed} of 2", lambda run: max(kill["seconds"] for kill in run["kills"]))
        what = f"SIGKILL of {killed} of two workers until all sample again, the slower of twice"
        yield Target(what, wanted, again and again.median, at_most=True, unit=" s")
    memory = numbers.field("memory", "reef", "peak_mb"), numbers.field("memory", "sb3", "peak_mb")
    yield Target("peak memory: Reef / Stable-Baselines3", 1.0, ratio(*memory), at_most=True)


NAMES = {
    "rllib": "RLlib",
    "tianshou": "Tianshou",
    "torchrl": "TorchRL",
    "sample_factory": "Sample Factory",
    "sb3": "Stable-Baselines3",
    "cleanrl": "CleanRL-style file",
    "bare loop": "bare loop",
    "reef": "Reef",
    "reef compiled": "Reef, learner compiled",
}


def _ppo(numbers: Numbers, minibatch: int) -> Iterator[Target]:
    found = numbers.rates("ppo", *(f"{case}, minibatch {minibatch}" for case in PPO_CASES))
    rates = dict(zip(PPO_CASES, found, strict=True))
    best = fastest([rates[peer] for peer in PEERS])
    name = f"PPO, minibatch {minibatch}"
    yield Target(f"{name}: Reef / fastest peer", 2.0, ratio(rates["reef"], best))
    reef, *peers = numbers.rates("ppo", *(f"{case}, minibatch {minibatch}, one thread" for case in ("reef", *PEERS)))
    yield Target(f"{name}, one thread: Reef / fastest peer", 4.5, ratio(reef, fastest(peers)))
    yield Target(f"{name}: Reef / RLlib", 4.0, ratio(rates["reef"], rates["rllib"]))
    yield Target(f"{name}: Reef compiled / fastest peer", 3.0, ratio(rates["reef compiled"], best))
    yield Target(f"{name}: Reef / bare loop", 0.85, ratio(rates["reef"], rates["bare loop"]))


def _workers(numbers: Numbers) -> Iterator[Target]:
    for minibatch in MINIBATCHES:
        name = f"reef, minibatch {minibatch}"
        for part, environment, alone, wanted in (
            ("ppo", "CartPole-v1", name, 0.95),
            ("lunar", "LunarLander-v3", f"{name}, 0 workers", 1.6),
        ):
            for case, how in (("2 workers", ""), ("2 workers ahead", " that sample ahead")):
                rates = numbers.rates(part, f"{name}, {case}", alone)
                what = f"two Ray workers{how} / none, {environment}, minibatch {minibatch}"
                yield Target(what, wanted, ratio(*rates))


def _to_reward(numbers: Numbers) -> float | None:
    seconds = [numbers.field("reward", case, "seconds") for case in ("reef", "sb3")]
    reached = all(run["reached"] for run in numbers.runs("reward", "reef"))
    return ratio(*seconds) if reached else inf
