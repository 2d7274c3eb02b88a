"""The policies of a worker, of which only so many have their weights in memory."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import quote

import torch
from safetensors.numpy import load_file, save_file

from reef.errors import WriteError
from reef.nn.fast import fast_actor
from reef.nn.flat import FlatParameters
from reef.nn.policies import Policy
from reef.types import Array, PolicyId

WEIGHTS = "weights"


class PolicyMap(dict[PolicyId, Policy]):
    """Policies by id. Beyond `capacity` the weights of those used longest ago are in files of a temporary folder.

    `map[policy_id]` reads them back, and so does a policy whose weights a person asks for. Those that learn stay.
    """

    def __init__(self, capacity: int, learns: Callable[[PolicyId], bool]) -> None:
        super().__init__()
        self._capacity, self._learns = capacity, learns
        self._in_memory: dict[PolicyId, None] = {}  # those that do not learn; used longest ago first
        self.away: set[PolicyId] = set()  # those whose weights are in files
        self._folder = ""
        self.num_read = 0  # files so far

    def change_to(self, policies: Mapping[PolicyId, Policy], learns: Callable[[PolicyId], bool]) -> None:
        """Hold these policies, of which some may be there already."""
        for policy_id in self.keys() - policies.keys():
            self.use(policy_id)  # a person may hold it
            self.pop(policy_id).recall = None
        self._learns = learns
        for policy_id, policy in policies.items():
            if policy_id not in self:
                self[policy_id] = policy
                policy.recall = partial(self.use, policy_id)
            if policy_id not in self.away:
                self.use(policy_id)

    def __getitem__(self, policy_id: PolicyId) -> Policy:
        """A policy with its weights."""
        self.use(policy_id)
        return super().__getitem__(policy_id)

    def get(self, policy_id: PolicyId, default: Any = None) -> Any:
        """A policy with its weights, or the default."""
        if policy_id not in self:
            return default
        return self[policy_id]

    def use(self, policy_id: PolicyId) -> None:
        """Have the weights of a policy in memory, and no more policies than there may be."""
        policy = super().__getitem__(policy_id)
        if policy_id in self.away:
            _take_back(policy.flat, load_file(self._file(policy_id))[WEIGHTS])
            self.away.remove(policy_id)
            policy.fast_actor = fast_actor(policy) if policy.acts_fast else None
            self.num_read += 1
        self._in_memory.pop(policy_id, None)
        self._in_memory = {name: None for name in self._in_memory if name in self and not self._learns(name)}
        if not self._learns(policy_id):
            self._in_memory[policy_id] = None
        learning = sum(map(self._learns, self))
        while len(self._in_memory) > max(self._capacity - learning, 1):
            self._put_away(next(iter(self._in_memory)))

    def _put_away(self, policy_id: PolicyId) -> None:
        policy = super().__getitem__(policy_id)
        try:
            save_file({WEIGHTS: policy.flat.numpy()}, self._file(policy_id))
        except OSError as error:
            raise WriteError(
                f"policy_map_capacity={self._capacity}: the weights of policy {policy_id!r} cannot be kept in a file: "
                f"{error}. Free space in the folder of temporary files, or raise it."
            ) from error
        del self._in_memory[policy_id]
        policy.fast_actor = None
        _release(policy.flat)
        self.away.add(policy_id)

    def _file(self, policy_id: PolicyId) -> Path:
        if not self._folder:
            self._folder = mkdtemp(prefix="reef-policies-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return Path(self._folder, f"{quote(policy_id, safe='')}.safetensors")


def _release(flat: FlatParameters) -> None:
    """Free the memory of parameters, which keep their shapes; every number is NaN then."""
    nothing = torch.full((1,), float("nan"), device=flat.vector.device)
    flat.vector = flat.gradient = nothing.expand(flat.vector.shape)
    for parameter in flat.parameters:
        parameter.data, parameter.grad = nothing.expand(parameter.shape), None


def _take_back(flat: FlatParameters, values: Array) -> None:
    """Have released parameters be made of these values."""
    flat.vector = torch.from_numpy(values).to(flat.vector.device)
    flat.bind()
