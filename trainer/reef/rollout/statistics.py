"""What the samples of a run say: the newest episodes, and how long workers take for a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reef.batch import Episode, Sample
from reef.config import AlgorithmConfig
from reef.errors import DamagedCheckpointError
from reef.trees import USE_ANOTHER, require_like
from reef.types import State


class SampleStatistics:
    """Collects the episodes and the timers of all samples."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.window = EpisodeWindow(config.metrics_num_episodes_for_smoothing)
        self.sampler_perf = SamplerPerf(config.sampler_perf_stats_ema_coef)

    def add(self, sample: Sample) -> None:
        """Take in one call of a worker's `sample`."""
        self.window.add(sample.episodes)
        self.sampler_perf.add(sample.timers, sample.env_steps)

    def state(self) -> State:
        """For checkpoints."""
        return {"window": self.window.state(), "sampler_perf": self.sampler_perf.state()}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned; `CheckpointError` where it is damaged."""
        require_like(state, {"window": EpisodeWindow(1).state(), "sampler_perf": SamplerPerf(None).state()}, "metrics")
        self.window.set_state(state["window"])
        self.sampler_perf.set_state(state["sampler_perf"])


class EpisodeWindow:
    """The episodes that an iteration's means run over.

    The newest `size` ones, or fewer at the beginning; when one iteration finished more than `size`, all of those.
    Size 1 is no smoothing: the newest episode alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._episodes: deque[Episode] = deque()
        self._new = 0
        self.total = 0

    def add(self, episodes: Sequence[Episode]) -> None:
        """Take in episodes that ended in this iteration, oldest first."""
        self._episodes.extend(episodes)
        self._new += len(episodes)
        self.total += len(episodes)
        self._trim(max(self._size, self._new))

    def take(self) -> tuple[list[Episode], int]:
        """The episodes to average over and how many of them are new; begins the next iteration."""
        if self._size == 1:
            self._trim(1)
        episodes, new = list(self._episodes), self._new
        self._new = 0
        self._trim(self._size)
        return episodes, new

    def _trim(self, length: int) -> None:
        while len(self._episodes) > length:
            self._episodes.popleft()

    def state(self) -> State:
        """The window as JSON values."""
        return {"episodes": [asdict(episode) for episode in self._episodes], "new": self._new, "total": self.total}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        for index, episode in enumerate(state["episodes"]):
            require_like(episode, asdict(Episode(0.0, 0)), f"metrics/window/episodes/{index}")
            for name in ("policy_rewards", "custom_metrics"):
                _require_numbers(episode[name], f"metrics/window/episodes/{index}/{name}")
            for name, values in episode["hist_data"].items():
                _require_numbers(dict(enumerate(values)), f"metrics/window/episodes/{index}/hist_data/{name}")
        self._episodes = deque(Episode(**episode) for episode in state["episodes"])
        self._new, self.total = int(state["new"]), int(state["total"])


class SamplerPerf:
    """Milliseconds per environment step that workers spend, by name ("env_wait", "inference")."""

    def __init__(self, ema_coef: float | None) -> None:
        self._ema_coef = ema_coef  # None: the mean over the whole run
        self._mean_s: dict[str, float] = {}
        self._steps: dict[str, int] = {}

    def add(self, timers: Mapping[str, float], env_steps: int) -> None:
        """Take in `timers` in seconds, spent on `env_steps` steps."""
        for name, seconds in timers.items() if env_steps else ():
            steps = self._steps[name] = self._steps.get(name, 0) + env_steps
            coef = env_steps / steps if self._ema_coef is None or steps == env_steps else self._ema_coef
            old = self._mean_s.get(name, 0.0)
            self._mean_s[name] = old + coef * (seconds / env_steps - old)

    def means_ms(self) -> dict[str, float]:
        """Means by field name (`mean_<name>_ms`)."""
        return {f"mean_{name}_ms": 1000.0 * seconds for name, seconds in self._mean_s.items()}

    def state(self) -> State:
        """The means and the steps behind them."""
        return {"mean_s": dict(self._mean_s), "steps": dict(self._steps)}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        _require_numbers(state["mean_s"], "metrics/sampler_perf/mean_s")
        require_like(state["steps"], dict.fromkeys(state["mean_s"], 0), "metrics/sampler_perf/steps")
        self._mean_s, self._steps = dict(state["mean_s"]), dict(state["steps"])


def _require_numbers(stored: Mapping[Any, Any], key: str) -> None:
    """NaN is one: what a user's own code measured may be so."""
    for name, value in stored.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DamagedCheckpointError(f"{key}/{name} is {value!r}, expected a number. {USE_ANOTHER}")
