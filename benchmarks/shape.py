"""How much of the trainer is read to follow PPO from its settings to the gradient, counted by a trace.

PPO trains one iteration of CartPole-v1 in this process, and every function of `reef` that runs is seen.

Files: those in which a function runs from the call of `train()` to the end of the optimizer's first step, and those
that define the classes of PPO's settings. What only `build()` needs is not counted, and what follows the step is not
either: the statistics of the iteration, and the weights on their way to the workers.

Calls: the first observation that `VectorEnv.step` returns is searched for, by its numbers, in the arguments and results
of every function until the gradient of a minibatch that holds it is computed. A function is on its way if
- it returns or yields the observation, or a generator that was given it, or
- it is given the observation and then keeps it in `self`, or
- it runs when the gradient's function is called, and is given the observation or gives it to the next.

Each function counts once, with the lambdas and comprehensions in it; so does the gradient's, but not `VectorEnv.step`.
What only reads the observation, such as a check for NaN or the policy that acts on it, is not on its way. A helper is
given the observation and hands it back; the calls are counted with and without helpers, and the goal is for all.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from inspect import getargvalues, getsourcefile
from pathlib import Path
from types import CodeType, FrameType, GeneratorType
from typing import Any

import numpy as np
import torch

import reef
from reef.algorithms.ppo import PPOConfig
from reef.config.settings import Settings
from reef.types import DEFAULT_POLICY

ROOT = f"{Path(reef.__file__).parent}/"
# two environments, two passes of two minibatches
SETTINGS = {"env": "CartPole-v1", "num_envs_per_worker": 2, "train_batch_size": 64, "sgd_minibatch_size": 32}
SETTINGS |= {"num_sgd_iter": 2, "seed": 0}
GOALS = {"files": 24, "lines": 3200, "calls": 10}


@dataclass(frozen=True)
class Shape:
    lines: dict[str, int]  # of each file, by its path in trainer/reef
    calls: dict[str, bool]  # whether each is a helper, by name, file and line, in the order in which it is left

    @property
    def counts(self) -> dict[str, int]:
        calls = {"calls": len(self.calls), "calls without helpers": list(self.calls.values()).count(False)}
        return {"files": len(self.lines), "lines": sum(self.lines.values())} | calls


@dataclass
class Trace:
    """Keeps the files whose functions run until `last` returns, and the calls from `step` to `gradient`."""

    step: CodeType
    gradient: CodeType
    last: CodeType
    files: set[str] = field(default_factory=set)
    calls: dict[CodeType, bool] = field(default_factory=dict)  # whether it is a helper
    # whether each function that runs now was given the observation, and whether `self` had it before
    running: dict[FrameType, tuple[bool, bool]] = field(default_factory=dict)
    observation: Any = None  # [*obs]
    followed: bool = False
    ended: bool = False

    def see(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(ROOT):
            return
        if not self.ended:
            self.files.add(code.co_filename)
            self.ended = code is self.last and event == "return"
        if self.observation is None:
            if code is self.step and event == "return":
                self.observation = result.obs[0].copy()
        elif not self.followed and not code.co_name.startswith("<"):
            (self.enter if event == "call" else self.leave)(frame, result)

    def enter(self, frame: FrameType, _: None) -> None:
        names, several, by_name, values = getargvalues(frame)
        given = any(self.holds(values.get(name)) for name in (*names, several, by_name) if name != "self")
        self.running[frame] = given, given and self.holds(values.get("self"))
        if given and frame.f_code is self.gradient:
            self.calls |= dict.fromkeys(self.givers(frame), False)
            self.followed = True

    def leave(self, frame: FrameType, result: Any) -> None:
        given, had = self.running.pop(frame, (False, False))
        back = self.holds(result) or (given and isinstance(result, GeneratorType))
        if back or (given and not had and self.holds(frame.f_locals.get("self"))):
            self.calls.setdefault(frame.f_code, given and back)

    def givers(self, frame: FrameType | None) -> list[CodeType]:
        """The functions around `frame`, outermost first, that were given the observation or give it to the next."""
        found, next_given = [], False
        while frame is not None:
            if frame.f_code.co_filename.startswith(ROOT) and not frame.f_code.co_name.startswith("<"):
                given, _ = self.running.get(frame, (False, False))
                found += [frame.f_code] if given or next_given else []
                next_given = given
            frame = frame.f_back
        return found[::-1]

    def holds(self, value: Any, depth: int = 2) -> bool:
        """Whether the observation is in an array, a collection of them, or an object of Reef, `depth` objects deep."""
        value = value.detach().numpy() if isinstance(value, torch.Tensor) else value
        if isinstance(value, np.ndarray):
            return value.shape[-1:] == self.observation.shape and bool((value == self.observation).all(-1).any())
        if isinstance(value, dict | list | tuple):
            return any(self.holds(each, depth) for each in (value.values() if isinstance(value, dict) else value))
        if depth == 0 or not type(value).__module__.startswith("reef."):
            return False
        names = getattr(type(value), "__slots__", ()) or getattr(value, "__dict__", ())
        return any(self.holds(getattr(value, name), depth - 1) for name in names)


def measure() -> Shape:
    """Build PPO and train one iteration."""
    with PPOConfig.from_dict(SETTINGS).build() as algorithm:
        env, trained = algorithm.workers.local_worker().env.env, algorithm.learners.learners[DEFAULT_POLICY].parameters
        steps = [type(each).step.__code__ for each in (env, trained.optimizer)]
        trace = Trace(step=steps[0], gradient=trained.gradient.__code__, last=steps[1])
        sys.setprofile(trace.see)
        try:
            algorithm.train()
        finally:
            sys.setprofile(None)
    assert trace.followed and trace.ended, "the gradient and the optimizer's step are seen"
    parts = (algorithm.config, *vars(algorithm.config).values())
    declaring = {getsourcefile(kind) for part in parts for kind in type(part).__mro__ if issubclass(kind, Settings)}
    lines = {file[len(ROOT) :]: Path(file).read_text().count("\n") for file in trace.files | declaring}
    calls = {f"{c.co_qualname} {c.co_filename[len(ROOT) :]}:{c.co_firstlineno}": h for c, h in trace.calls.items()}
    return Shape(dict(sorted(lines.items(), key=lambda item: -item[1])), calls)


def table(shape: Shape) -> str:
    goals = {what: f"  goal {goal}: {'' if shape.counts[what] <= goal else 'not '}met" for what, goal in GOALS.items()}
    rows = [f"{what:22}{count:6}{goals.get(what, '')}" for what, count in shape.counts.items()]
    rows += ["", " lines file", *(f"{count:6} {file}" for file, count in shape.lines.items())]
    rows += ["", "       call", *(f"{'helper' if helper else '':6} {call}" for call, helper in shape.calls.items())]
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(measure()))
