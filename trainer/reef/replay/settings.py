"""Settings of the replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from reef.config import setting
from reef.config.refusals import Refusal
from reef.config.settings import Settings

# Keys of RLlib that mean nothing here, or are called otherwise.
REFUSALS: Mapping[str, Refusal] = {
    "type": Refusal("", None, "use prioritized_replay=True or False; there are no other kinds"),
    "storage_unit": Refusal("", "timesteps", "is chosen by model.use_lstm: with it sequences are replayed, else steps"),
    "replay_sequence_length": Refusal("", None, "use model.max_seq_len"),
    "replay_zero_init_states": Refusal("", None, "use zero_init_states"),
    "learning_starts": Refusal("", None, "use num_steps_sampled_before_learning_starts, beside replay_buffer_config"),
    "alpha": Refusal("", None, "use prioritized_replay_alpha"),
    "beta": Refusal("", None, "use prioritized_replay_beta"),
    "eps": Refusal("", None, "use prioritized_replay_eps"),
    "replay_batch_size": Refusal("", None, "use train_batch_size, beside replay_buffer_config"),
    "replay_mode": Refusal("", "independent", "every policy has a replay buffer of its own"),
    "num_shards": Refusal("", None, "use num_replay_buffer_shards of Ape-X, beside replay_buffer_config"),
    "worker_side_prioritization": Refusal("", None, "is a setting of Ape-X, beside replay_buffer_config"),
    "underlying_buffer_config": Refusal("", None, "there are no buffers inside others; remove it"),
}


class ReplayBufferConfig(Settings):
    """The replay buffer. Given as a mapping, it is merged over the algorithm's own defaults."""

    label: ClassVar[str] = "replay_buffer_config"
    prefix: ClassVar[str] = "replay_buffer_config."
    refusals = REFUSALS

    capacity: int = setting(50_000, "Transitions kept for each policy; the oldest go first.", minimum=1, unit="steps")
    prioritized_replay: bool = setting(True, "Replay transitions with large TD errors more often.")
    prioritized_replay_alpha: float = setting(
        0.6, "How much TD errors decide: 0 = not at all, 1 = in proportion.", minimum=0.0, maximum=1.0
    )
    prioritized_replay_beta: float = setting(
        0.4, "How far importance weights undo the preference: 1 = fully.", minimum=0.0, maximum=1.0
    )
    prioritized_replay_eps: float = setting(1e-6, "Added to TD errors, so that no priority is 0.", above=0.0)
    replay_burn_in: int = setting(
        0,
        "With model.use_lstm: steps before those of a sequence that are learned from, which only bring the state of "
        "the memory up to date.",
        minimum=0,
        unit="steps",
    )
    zero_init_states: bool = setting(
        False, "With model.use_lstm: begin every sequence with zeros, not with the state with which the policy acted."
    )
