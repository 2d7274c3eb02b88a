"""An algorithm as a trial of Ray Tune, in a process that Tune places and starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ray.tune import PlacementGroupFactory, Trainable

from reef.distributed.resources import trial_bundles
from reef.run.algorithm import Algorithm
from reef.run.build import settings_of
from reef.run.checkpoint import write_checkpoint
from reef.run.metrics import Result


class AlgorithmTrainable(Trainable):
    """Trains one iteration a step. Its checkpoints are Reef's, also in Tune's folders.

    The trial's configuration has the settings of the algorithm by key. Its workers and learners run in the placement
    group of the trial, see `reef.distributed.resources.reserve`.
    """

    algorithm: ClassVar[type[Algorithm]]

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """The room of the trial's processes; ConfigError, in the driver, where the settings are wrong."""
        settings = settings_of(cls.algorithm, config).checked()
        return PlacementGroupFactory(trial_bundles(settings), strategy=settings.placement_strategy)

    def setup(self, config: dict[str, Any]) -> None:
        """Build the algorithm."""
        self._trained = settings_of(self.algorithm, config).build()

    def step(self) -> dict[str, Any]:
        """Train for an iteration."""
        return comparable(self._trained.train())

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a checkpoint of Reef."""
        write_checkpoint(checkpoint_dir, self._trained.state(), self._trained.metadata())

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from the checkpoint in a folder, with the settings of this trial."""
        self._trained.restore(checkpoint)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Build the algorithm again, where Tune has the process go on with other settings."""
        self.cleanup()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        """End the workers and environments."""
        self._trained.stop()


def comparable(result: Mapping[str, Any]) -> Result:
    """A result as Tune compares it: NaN for numbers that are not known, such as rewards before an episode ends."""
    return {
        key: math.nan if value is None else value
        for key, value in result.items()
        if not (key.endswith("_reason") and value is None)
    }
