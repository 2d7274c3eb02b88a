"""Settings of RLlib that are refused: those that do not work yet, and those that mean nothing here.

A document may give one at its default, which has no effect. A feature that brings a setting declares it where it is
read and takes its line out of this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reef.config.values import MisfitError, plain

NOT_YET = "not available yet"
TENSORFLOW = "is for TensorFlow, and Reef trains with PyTorch; "
OWN_WORKER = "derive an algorithm of your own, class Mine(PPO), whose settings name their worker_class"
THREADS = {"intra_op_parallelism_threads": 2, "inter_op_parallelism_threads": 2}
SESSION = {
    **THREADS,
    "gpu_options": {"allow_growth": True},
    "log_device_placement": False,
    "device_count": {"CPU": 1},
    "allow_soft_placement": True,
}
LOCAL_SESSION = {"intra_op_parallelism_threads": 8, "inter_op_parallelism_threads": 8}


@dataclass(frozen=True)
class Refusal:
    """The only value that a key may have, and why."""

    group: str
    default: Any
    advice: str = NOT_YET

    def refuses(self, value: Any) -> bool:
        """Whether `value` is another one than the default."""
        try:
            return bool(plain(value) != plain(self.default))
        except MisfitError:
            return True


REFUSALS: dict[str, Refusal] = {
    "eager_tracing": Refusal("framework", False, f"{TENSORFLOW}use torch_compile_learner and torch_compile_worker"),
    "eager_max_retraces": Refusal("framework", 20, f"{TENSORFLOW}torch.compile keeps its own recompilation limit"),
    "tf_session_args": Refusal("framework", SESSION, f"{TENSORFLOW}use torch_threads_per_worker"),
    "local_tf_session_args": Refusal("framework", LOCAL_SESSION, f"{TENSORFLOW}use torch_threads_per_learner"),
    "env_runner_cls": Refusal("rollouts", None, OWN_WORKER),
    "sample_collector": Refusal("rollouts", None, OWN_WORKER),
    "compress_observations": Refusal(
        "rollouts", False, "batches are arrays that processes share; output_compress_columns compresses files"
    ),
    "enable_connectors": Refusal(
        "rollouts",
        False,
        "connectors are functions; set env_to_module_connector or module_to_env_connector",
    ),
    "episode_lookback_horizon": Refusal(
        "rollouts", 1, "what a policy remembers is its recurrent state, which goes from each fragment into the next"
    ),
    "enable_tf1_exec_eagerly": Refusal(
        "rollouts", False, f"{TENSORFLOW}torch runs eagerly unless torch_compile_worker is set"
    ),
    "learner_class": Refusal(
        "training", None, "derive an algorithm of your own, class Mine(PPO), whose learner_class it is"
    ),
    "model.post_fcnet_activation": Refusal(
        "training", "relu", "these layers use conv_activation after convolutions, else fcnet_activation"
    ),
    "model.no_final_linear": Refusal(
        "training", False, "outputs come from a linear layer; use model.custom_model, which is the whole network"
    ),
    "model.custom_preprocessor": Refusal("training", None, "wrap the environment with a gymnasium.ObservationWrapper"),
    "in_evaluation": Refusal("evaluation", False, "is set by Reef itself in the settings for evaluation"),
    "metrics_episode_collection_timeout_s": Refusal(
        "reporting", 60.0, "episodes come with their samples, so nothing waits for them; use sample_timeout_s"
    ),
    "fake_sampler": Refusal(
        "debugging", False, "Reef always samples; 'timers' of a result say what sampling and learning take"
    ),
    "policy_states_are_swappable": Refusal(
        "multi_agent", False, "beyond policy_map_capacity weights alone go to files, and policies stay what they are"
    ),
    "policy_map_cache": Refusal("multi_agent", None, "Reef keeps their weights in a temporary folder"),
    "input_evaluation": Refusal("offline_data", ["is", "wis"], "use off_policy_estimation_methods"),
    "postprocess_inputs": Refusal("offline_data", False),
    "offline_sampling": Refusal("offline_data", False, "input_ says where steps come from"),
    "_enable_new_api_stack": Refusal("experimental", False, "Reef has one engine; remove it"),
    "_tf_policy_handles_more_than_one_loss": Refusal(
        "experimental", False, "is for TensorFlow; a Reef learner may return any loss"
    ),
    "_disable_preprocessor_api": Refusal(
        "experimental", False, "model.custom_model gets observations without encoding, a Dict or Tuple as one row"
    ),
    "_disable_action_flattening": Refusal(
        "experimental", False, "environments get actions in the form of their space, and networks one row for each"
    ),
    "_disable_initialize_loss_from_dummy_batch": Refusal(
        "experimental", False, "Reef makes no such trial run; remove it"
    ),
    "_disable_execution_plan_api": Refusal("experimental", False, "Reef has no execution plans; remove it"),
}


def refusals_in(prefix: str = "") -> Mapping[str, Refusal]:
    """The refusals of a set of settings by key: of those whose keys begin with `prefix`, such as "model."."""
    inside = {key.removeprefix(prefix): refusal for key, refusal in REFUSALS.items() if key.startswith(prefix)}
    return {key: refusal for key, refusal in inside.items() if "." not in key}
