"""Policies whose weights are perturbed by noise from a table, with other noise in each column."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reef.config import AlgorithmConfig
from reef.errors import ConfigError
from reef.nn.custom import custom_module
from reef.nn.layers.encoders import EncoderWithHead
from reef.nn.policies import Policy
from reef.spaces import Space
from reef.types import Array

log = logging.getLogger(__name__)

SHARED_FROM = 1_000_000  # numbers; a smaller table is made faster than it is read


@cache
def noise_table(size: int) -> NDArray[np.float32]:
    """Standard normal numbers [size], the same in every process: an index into it stands for a vector of noise.

    A large one is a file in the cache folder of the user, by which the processes of a node share its memory; where
    that cannot be written, each has a table of its own.
    """
    if size < SHARED_FROM:
        return _drawn(size)
    try:
        return _shared(size)
    except (OSError, RuntimeError, ValueError) as error:
        log.warning("each process has a table of noise of its own, %d MB: %s", size * 4 // 2**20, error)
        return _drawn(size)


def _shared(size: int) -> NDArray[np.float32]:
    """The table in a file; of processes that write it at the same time the first one does so for all.

    Raises OSError where it cannot be written, RuntimeError where there is no home folder.
    """
    path = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "reef", f"noise-{size}.npy").expanduser()
    try:
        return _mapped(path, size)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (EOFError, ValueError):  # damaged
        path.unlink(missing_ok=True)
    with TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder, path.name)
        np.save(written, _drawn(size))
        with suppress(FileExistsError):
            os.link(written, path)
    return _mapped(path, size)


def _drawn(size: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(size, np.float32)


def _mapped(path: Path, size: int) -> NDArray[np.float32]:
    """OSError, EOFError or ValueError when the file is not there or is not such a table."""
    table: NDArray[np.float32] = np.load(path, mmap_mode="r")
    if table.shape != (size,) or table.dtype != np.float32:
        raise ValueError(f"{path} holds {table.dtype} {table.shape}")
    return table


class PerturbedPolicy(Policy):
    """An actor without a critic."""

    def __init__(
        self, config: AlgorithmConfig, observation_space: Space, action_space: Space, *, noise_size: int
    ) -> None:
        """`noise_size`: numbers in the noise table.

        Raises ConfigError if a custom model cannot be made, or if the table is smaller than the policy.
        """
        super().__init__(config, observation_space, action_space)
        outputs, self.noise_size = self.dist_class.num_inputs, noise_size
        if config.model.custom_model:
            self.actor: nn.Module = custom_module(config, observation_space, action_space, outputs, critic=False)
            if hasattr(self.actor, "custom_loss"):
                raise ConfigError(
                    f"model.custom_model={type(self.actor).__name__} has custom_loss, and {config.algorithm} descends "
                    "no loss. Leave the method out, or use PPO."
                )
        else:
            self.actor = EncoderWithHead(self.input_layout, config.model, outputs)
        length = sum(parameter.numel() for parameter in self.actor.parameters())
        if length > noise_size:
            raise ConfigError(
                f"noise_size={noise_size}: the policy has {length} weights, and the noise for them has to fit into the "
                "table. Raise noise_size."
            )
        # By parameter of the actor, the weights of each column, [B, ...]; None: all columns have the policy's own.
        self.column_weights: dict[str, Tensor] | None = None

    def noise(self, indices: Array) -> NDArray[np.float32]:
        """[n] -> [n, P], the noise that begins at these places of the table."""
        table, length = noise_table(self.noise_size), self.flat.vector.numel()
        return np.stack([table[index : index + length] for index in indices])

    def perturb(self, noise: NDArray[np.float32] | None) -> None:
        """Add `noise` [B, P] to the weights by which the columns act; None: back to the policy's own."""
        self.column_weights = None
        if noise is not None:
            vectors = self.flat.vector + torch.from_numpy(noise).to(self.device)
            names, parameters = zip(*self.actor.named_parameters(), strict=True)
            parts = torch.split(vectors, [parameter.numel() for parameter in parameters], dim=1)
            shaped = (part.view(-1, *own.shape) for part, own in zip(parts, parameters, strict=True))
            self.column_weights = dict(zip(names, shaped, strict=True))

    def forward(self) -> Tensor:
        """All weights [P]: what is trained is not the outputs for observations."""
        return torch.cat([parameter.reshape(-1) for parameter in self.parameters()])

    @property
    def inputs(self) -> tuple[str, ...]:
        """None."""
        return ()

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D]; after `perturb` N is the number of columns B."""
        if self.column_weights is None:
            return self._outputs({}, obs)
        return torch.vmap(lambda weights, row: self._outputs(weights, row[None])[0])(self.column_weights, obs)

    def _outputs(self, weights: dict[str, Tensor], obs: Tensor) -> Tensor:
        given = self.unmasked(obs) if self.config.model.custom_model else obs
        found: Any = torch.func.functional_call(self.actor, weights, (given,)) if weights else self.actor(given)
        outputs: Tensor = found[0] if isinstance(found, tuple) else found  # custom models return a tuple
        return self.masked(obs, outputs)
