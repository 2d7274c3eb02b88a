"""Settings that were given although nothing reads them: a text for each, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from reef.config.algorithm_config import AlgorithmConfig
    from reef.config.groups.training import ModelConfig

FOR_VECTORS = ("model.fcnet_hiddens", "model.fcnet_activation")
FOR_IMAGES = ("model.conv_filters", "model.conv_activation")
OF_LSTM = ("model.lstm_", "model.recurrent_cell")
OF_WORKERS = (
    "create_env_on_local_worker",
    "synchronize_filters",
    "use_worker_filter_stats",
    "update_worker_filter_stats",
)
OF_PROCESSES = (
    "validate_workers_after_construction",
    "extra_python_environs_for_worker",
    "custom_resources_per_worker",
    "num_cpus_per_worker",
)
OF_RAMP = ("initial_epsilon", "final_epsilon", "warmup_timesteps", "epsilon_timesteps")
REPLAY = "replay_buffer_config"
# by preprocessor_pref: the settings of the model that say how frames of Atari games are prepared
FOR_FRAMES = {"deepmind": ("dim", "framestack"), "rllib": ("dim", "grayscale", "zero_mean")}
OF_FRAMES = tuple(dict.fromkeys(key for keys in FOR_FRAMES.values() for key in keys))
FOR_ACTOR_CRITICS = ("model.free_log_std", "model.vf_share_layers")


class Network(Protocol):
    """What a policy says of its network."""

    @property
    def has_image(self) -> bool | None:
        """Whether Reef's encoder reads an image; None for a network without that encoder."""

    def modules(self) -> Iterator[Any]:
        """All its parts."""


def ignored(config: AlgorithmConfig, reason: str, *keys: str) -> Iterator[str]:
    """A text with the `reason` for each of the settings (dotted keys) whose value is not the algorithm's default."""
    for key in keys:
        name, _, part = key.partition(".")
        value, usual = getattr(config, name), config.declared[name].fresh()
        if part:
            value, usual = getattr(value, part), getattr(usual, part)
        if value != usual:
            yield f"{key}={value!r} has no effect {reason}."


def ignored_beside_others(config: AlgorithmConfig) -> Iterator[str]:
    """Settings that have no effect because of another one, whatever the network is."""
    if config.grad_clip is None:
        yield from ignored(config, "without grad_clip", "grad_clip_by")
    if config.train_batch_size_per_learner is not None:
        yield from ignored(config, "beside train_batch_size_per_learner", "train_batch_size")
    if not (config.sample_async or config.asynchronous or (config.reads_records and config.num_rollout_workers)):
        yield from ignored(config, "without sample_async", "max_requests_in_flight_per_sampler_worker")
    if not (config.remote_worker_envs or config.evaluation_config.get("remote_worker_envs")):
        yield from ignored(config, "without remote_worker_envs", "remote_env_batch_wait_ms")
    if not config.num_rollout_workers:
        yield from ignored(config, "without rollout workers in processes of their own", *OF_WORKERS)
        if not config.evaluation_num_workers:
            yield from ignored(config, "without workers in processes of their own", *OF_PROCESSES)
    elif config.observation_filter != "NoFilter" and not config.use_worker_filter_stats:
        yield "use_worker_filter_stats=False leaves evaluation and checkpoints without the filter of the workers."
    if config.reads_records and config.input_use == "possible":
        unread: tuple[str, ...] = ("num_steps_sampled_before_learning_starts", "training_intensity")
        yield from ignored(config, "with input_, whose steps are all there before it learns", *unread)
        unread = ("rollout_fragment_length", "batch_mode")
        yield from ignored(config, "with input_, as no steps are sampled to learn from", *unread)
    yield from _ignored_beside_schedule("exploration_config", config.exploration_config)
    if (buffer := getattr(config, REPLAY, None)) is not None and not buffer.prioritized_replay:
        keys = (key for key in type(buffer).by_key if key.startswith("prioritized_replay_"))
        yield from ignored(config, f"without {REPLAY}.prioritized_replay", *(f"{REPLAY}.{key}" for key in keys))


def _ignored_beside_schedule(path: str, exploration: Mapping[str, Any]) -> Iterator[str]:
    """Arguments of a falling epsilon, of an exploration or of its sub-exploration, that a schedule replaces."""
    if exploration.get("epsilon_schedule") is not None:
        for key in OF_RAMP:
            if key in exploration:
                yield f"{path}.{key}={exploration[key]!r} has no effect beside {path}.epsilon_schedule."
    if isinstance(inner := exploration.get("sub_exploration"), Mapping):
        yield from _ignored_beside_schedule(f"{path}.sub_exploration", inner)


def given_for_frames(model: ModelConfig) -> list[str]:
    """The settings of Atari frames that are not at their defaults."""
    return [key for key in OF_FRAMES if getattr(model, key) != model.declared[key].default]


def problems_of_frames(model: ModelConfig, preference: str | None) -> Iterator[str]:
    """A text for each setting of Atari frames that was given and that the `preprocessor_pref` does not read."""
    for key in given_for_frames(model):
        if key not in FOR_FRAMES.get(preference or "", ()):
            yield (
                f"model.{key}={getattr(model, key)!r}: has no effect with preprocessor_pref={preference!r}. "
                f"Leave it at {model.declared[key].default!r}."
            )


def frames_of_one_policy(own: ModelConfig, alike: ModelConfig) -> Iterator[str]:
    """A text for each setting of Atari frames that differs for one policy: an environment prepares them once."""
    for key in OF_FRAMES:
        if (value := getattr(own, key)) != getattr(alike, key):
            text = "has no effect for one policy: all policies see the same frames. Set it for all."
            yield f"config.model.{key}={value!r} {text}"


def drawing_problems(config: Any) -> Iterator[str]:
    """Settings by which an environment would have to draw in two ways."""
    if config.record_env and config.render_env:
        yield (
            f"record_env={config.record_env!r}, render_env=True: an environment draws in one way. Leave one of them "
            "out."
        )
    given = config.env_config.get("render_mode")
    for key, mode in (("record_env", "rgb_array"), ("render_env", "human")):
        if getattr(config, key) and given not in (None, mode):
            yield (
                f"env_config: render_mode={given!r}: has no effect with {key}, which takes {mode!r}. Leave it out, or "
                f"{key}."
            )


def drawn_in_evaluation(config: Any) -> Iterator[str]:
    """The `drawing_problems` of evaluation that training does not have."""
    known = [*drawing_problems(config)]
    yield from (text for text in drawing_problems(config.evaluation_settings()) if text not in known)


def ignored_with(config: AlgorithmConfig, has_image: bool, *for_vectors: str) -> Iterator[str]:
    """Settings of the encoder that the observations do not need; `for_vectors`: those of observations without image."""
    if has_image:
        advice = "Use model.post_fcnet_hiddens and model.conv_activation"
        yield from ignored(config, f"with an image in the observations. {advice}", *for_vectors)
    else:
        advice = "Use model.fcnet_hiddens and model.fcnet_activation"
        yield from ignored(config, f"without an image in the observations. {advice}", *FOR_IMAGES)


def ignored_without_actor_critic(config: AlgorithmConfig, network: Network, reason: str) -> Iterator[str]:
    """Settings of the model that a network which is no actor-critic does not read."""
    if config.model.custom_model:
        yield from ignored_beside_custom_model(config)
    elif network.has_image is not None:
        yield from ignored_with(config, network.has_image, "model.fcnet_hiddens")
        yield from ignored(config, reason, *FOR_ACTOR_CRITICS)


def ignored_beside_custom_model(config: AlgorithmConfig, *keys: str) -> Iterator[str]:
    """Settings of the network that a custom model replaces; `keys`: those that the algorithm adds."""
    reason = "beside model.custom_model, which is the whole network. Its own settings are model.custom_model_config"
    of_encoder = (*FOR_VECTORS, *FOR_IMAGES, "model.post_fcnet_hiddens")
    yield from ignored(config, reason, *of_encoder, *FOR_ACTOR_CRITICS, *keys)


def ignored_of_memory(config: AlgorithmConfig) -> Iterator[str]:
    """Settings of a memory that the network does not have."""
    keys = [f"model.{key}" for key in type(config.model).by_key]
    if not config.model.use_lstm:
        yield from ignored(config, "without model.use_lstm", *(k for k in keys if k.startswith(OF_LSTM)))
    if not config.model.use_attention:
        yield from ignored(
            config, "without model.use_attention", *(k for k in keys if k.startswith("model.attention_"))
        )
    if not (config.model.memories or config.model.custom_model):
        yield from ignored(config, "without a memory", "model.max_seq_len")
