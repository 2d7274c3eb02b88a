"""From the settings `env` and `env_config` to environments."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import gymnasium as gym

from reef.config import AlgorithmConfig
from reef.config.loading import load
from reef.envs.adapted import AdaptedVector, FirstColumn
from reef.envs.agents.aec import AECAgents
from reef.envs.agents.envs import MultiAgentEnvs
from reef.envs.agents.observing import ObservedAgents
from reef.envs.agents.spaces_alone import SpacesAlone
from reef.envs.agents.turns import TurnEnvs
from reef.envs.atari.frames import check_frame_settings, prepared_frames
from reef.envs.atari.lives import GamesVectorEnv, lives_of
from reef.envs.atari.names import arguments, atari_hint, is_atari, registered
from reef.envs.by_policy import PolicyEnvs, SingleAgentEnvs
from reef.envs.check import (
    check_display,
    check_env,
    check_methods,
    check_render,
    check_spaces,
    render_mode_of,
)
from reef.envs.context import EnvContext, env_context
from reef.envs.curriculum.tasks import task_settable
from reef.envs.failures import env_name, missing_package
from reef.envs.loop import Env, LoopVectorEnv
from reef.envs.multi_agent import is_multi_agent
from reef.envs.native import CartPoleVector
from reef.envs.old_api import STEPS_TO_NEW_API, OldApiEnv, speaks_old_api
from reef.envs.remote.processes import EnvProcesses
from reef.envs.remote.vector import RemoteVectorEnv
from reef.envs.vector import EpisodeListener, VectorEnv
from reef.errors import ConfigError, EnvironmentError, ReefError, nearest, own_traceback, sentence
from reef.types import DEFAULT_POLICY

T = TypeVar("T")
logger = logging.getLogger(__name__)

# What a vectorised form of others does not know.
LOOP_SETTINGS = ("horizon", "soft_horizon", "no_done_at_end", "restart_failed_sub_environments")
FOR_ONE_AGENT = (*(key for key in LOOP_SETTINGS if key != "horizon"), "observation_space", "action_space")
FOR_SEVERAL_AGENTS = {  # and what else there is
    "observation_fn": "Leave it out, and wrap the environment with a gymnasium.ObservationWrapper",
    "policy_mapping_fn": "Leave it out, or give an environment of several agents",
}
CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"


def make_vector_env(config: AlgorithmConfig, worker_index: int, num_envs: int, *, recreated: bool = False) -> VectorEnv:
    """Make `num_envs` environments of `config.env` for one worker.

    Raises ConfigError for a name that leads nowhere and EnvironmentError for an environment that cannot be made or
    breaks the Gymnasium API. `recreated` says that the worker replaces one that failed.
    """
    make = _making_of(config, worker_index, recreated, None)
    try:
        return _vector_env(config, worker_index, num_envs, make)
    except BaseException:
        make.end()
        raise


def _making_of(
    config: AlgorithmConfig, worker_index: int, recreated: bool, listener: EpisodeListener | None
) -> EnvFactory | EnvProcesses:
    return (EnvProcesses if config.remote_worker_envs else EnvFactory)(config, worker_index, recreated, listener)


def _vector_env(
    config: AlgorithmConfig, worker_index: int, num_envs: int, make: EnvFactory | EnvProcesses
) -> VectorEnv:
    spec = registered(config.env)
    if isinstance(make, EnvProcesses):
        if spec is not None and spec.entry_point is None:
            raise ConfigError(
                f"remote_worker_envs=True: environment {spec.id!r} is registered in its vectorised form alone, which "
                "steps all columns in one process. Leave it out, or register a single environment (entry_point) too."
            )
        return RemoteVectorEnv(config, worker_index, num_envs, make)
    one_by_one = make.listener is not None or render_mode_of(config, worker_index) is not None
    if spec is not None and not one_by_one and _runs_natively(config, spec):
        limit = spec.max_episode_steps or sys.maxsize
        return CartPoleVector(config, worker_index, num_envs, max_episode_steps=limit)
    vectorised = None if spec is None else _vectorised(config, spec, num_envs, one_by_one=one_by_one)
    if vectorised is not None:
        return AdaptedVector(config, worker_index, vectorised)
    kind = LoopVectorEnv if lives_of(make.first()) is None else GamesVectorEnv
    return kind(config, worker_index, num_envs, make, make.listener)


def make_envs(
    config: AlgorithmConfig,
    worker_index: int,
    num_envs: int,
    *,
    recreated: bool = False,
    listener: EpisodeListener | None = None,
) -> PolicyEnvs:
    """As `make_vector_env`, as a worker steps them; those of several agents too.

    With a `listener` they are stepped one by one; ConfigError for one that has a vectorised form alone. Where
    applications play, there are none, and only their spaces.
    """
    if config.uses_policy_server:
        return SpacesAlone(config)
    if config.render_env and worker_index <= 1:
        check_display(env_name(config.env))
    make = _making_of(config, worker_index, recreated, listener)
    try:
        envs = _policy_envs(config, worker_index, num_envs, make)
    except BaseException:
        make.end()
        raise
    try:
        if not config.remote_worker_envs:  # or they are checked in their processes
            check_frame_settings(config, envs.envs[0], envs.name)
        if config.env_task_fn is not None and any(task_settable(env) is None for env in envs.envs):
            raise ConfigError(
                f"env_task_fn={config.env_task_fn!r}: environment {envs.name!r} has no get_task and set_task. Derive "
                "it from reef.TaskSettableEnv, or leave env_task_fn out."
            )
    except ConfigError:
        envs.close()
        raise
    return envs


def _policy_envs(
    config: AlgorithmConfig, worker_index: int, num_envs: int, make: EnvFactory | EnvProcesses
) -> PolicyEnvs:
    if registered(config.env) is None and is_multi_agent(first := make.first()):
        if asked := [key for key in FOR_ONE_AGENT if getattr(config, key)]:
            raise ConfigError(
                f"{', '.join(asked)}: not available with an environment of several agents, such as "
                f"{env_name(config.env)!r}. Leave it out."
            )
        if config.remote_env_batch_wait_ms:
            raise ConfigError(
                f"remote_env_batch_wait_ms={config.remote_env_batch_wait_ms}: has no effect with an environment of "
                f"several agents, such as {env_name(config.env)!r}: all are waited for. Leave it out."
            )
        in_turns = config.maps_each_episode or getattr(first, "agents_take_turns", False)
        return (TurnEnvs if in_turns else MultiAgentEnvs)(config, worker_index, num_envs, make, config.policy_of)
    if list(config.policies) != [DEFAULT_POLICY]:
        raise ConfigError(
            f"policies={list(config.policies)}: environment {env_name(config.env)!r} has one agent, which acts with "
            f"{DEFAULT_POLICY!r}. Leave policies out, or give an environment of several agents."
        )
    for key, instead in FOR_SEVERAL_AGENTS.items():
        if (value := getattr(config, key)) is not None:
            raise ConfigError(f"{key}={value!r}: environment {env_name(config.env)!r} has one agent. {instead}.")
    return SingleAgentEnvs(_vector_env(config, worker_index, num_envs, make))


class EnvFactory:
    """Makes the environments of a worker by their indices; the first one of all is checked."""

    def __init__(
        self,
        config: AlgorithmConfig,
        worker_index: int,
        recreated_worker: bool,
        listener: EpisodeListener | None = None,
        old_api: bool | None = None,
    ) -> None:
        """`old_api`: whether they are of the old API, where one was looked at already."""
        self.listener = listener
        self._config = config
        self._worker_index = worker_index
        self._recreated_worker = recreated_worker
        self.old_api = old_api  # None: is found out with the first environment
        self._first: Any = None  # made, and not used yet

    def first(self) -> Any:
        """The first environment, to look at; it is used later."""
        self._first = self.unchecked(0)
        return self._first

    def unchecked(self, index: int) -> Any:
        """An environment of any kind as it is."""
        if self._first is not None and index == 0:
            env, self._first = self._first, None
            return env
        return _created(self._config, self._context(index))

    def end(self) -> None:
        """Nothing: what it made is in this process."""

    def agents(self, index: int) -> Any:
        """An environment of several agents, for use."""
        return self._reported(index, self.unchecked(index))

    def _reported(self, index: int, env: T) -> T:
        if mode := render_mode_of(self._config, self._worker_index, index):
            check_render(env, env_name(self._config.env), mode)
        if self.listener is not None:
            self.listener.made(index, env, self._context(index))
        return env

    def _context(self, index: int) -> EnvContext:
        return env_context(self._config, self._worker_index, index, recreated=self._recreated_worker)

    def __call__(self, index: int) -> Env:
        """An environment of one agent, for use."""
        config, name = self._config, env_name(self._config.env)
        if self.old_api is not None:
            env = self.unchecked(index)
            return self._reported(index, OldApiEnv(env) if self.old_api else env)
        env = prepared(config, self.unchecked(index), self._context(index))
        self.old_api = isinstance(env, OldApiEnv)
        if not config.disable_env_checking:
            _check(env, name, config)
        return self._reported(index, env)


def make_env(config: AlgorithmConfig, context: EnvContext) -> Env:
    """Make one environment of `config.env`, wrapped where it is of the old API, as the workers have it.

    One of several agents is returned as it is.
    """
    env = _created(config, context)
    return env if registered(config.env) is None and is_multi_agent(env) else prepared(config, env, context)


def prepared(config: AlgorithmConfig, env: Env, context: EnvContext) -> Env:
    """The new `env`, which is looked at, and wrapped where it is of the old API."""
    name = env_name(config.env)
    check_methods(env, name)
    try_out = not config.disable_env_checking and registered(config.env) is None
    old_api = speaks_old_api(env, try_out=try_out)
    check_spaces(env, name, config)  # after the trial: some make their spaces in reset()
    if not old_api:
        return env
    if not config.auto_wrap_old_gym_envs:
        raise EnvironmentError(f"environment {name!r} is of the old Gym API. {STEPS_TO_NEW_API}")
    if context.worker_index == 0:
        text = f"environment {name!r} is of the old Gym API and wrapped; auto_wrap_old_gym_envs=False refuses it."
        warnings.warn(text, stacklevel=2)
    return OldApiEnv(env)


def _check(env: Env, name: str, config: AlgorithmConfig) -> None:
    """As `check_env`; what is refused is closed."""
    try:
        check_env(env, name, config)
    except BaseException:
        with suppress(Exception):
            env.close()
        raise


def _created(config: AlgorithmConfig, context: EnvContext) -> Env:
    creator = _creator(config.env)
    with _making(env_name(config.env), context, own_code=not isinstance(creator, str)):
        if isinstance(creator, str):
            kwargs = arguments(context)
            if context.render_mode is not None:
                kwargs["render_mode"] = context.render_mode
            if gym.registry[creator].entry_point is None:
                return FirstColumn(gym.make_vec(creator, 1, "vector_entry_point", **kwargs))
            return prepared_frames(config, gym.make(creator, **{"disable_env_checker": True, **kwargs}))
        env: Any = _call(creator, context)
        env = AECAgents(env) if hasattr(env, "agent_iter") else env
        if config.observation_fn is not None and is_multi_agent(env):
            env = ObservedAgents(env, config, env_name(config.env))
        return prepared_frames(config, env)


@contextmanager
def _making(name: str, env_config: Mapping[str, Any], *, own_code: bool = False) -> Iterator[None]:
    """Turn what is raised while an environment is made into EnvironmentError; of `own_code` the traceback is shown."""
    try:
        yield
    except ReefError:  # its text says all
        raise
    except gym.error.DependencyNotInstalled as error:
        raise missing_package(name, error) from error
    except Exception as error:
        own = own_traceback(error) if own_code else ""
        raise EnvironmentError(
            f"environment {name!r} cannot be made with env_config={env_config}: "
            f"{type(error).__name__}: {sentence(error)}{own}"
        ) from error


def _creator(env: object) -> Callable[[EnvContext], Env] | str:
    if callable(env):
        return env
    if not isinstance(env, str):
        raise ConfigError(
            f"env={env!r} is no environment. Give a Gymnasium id such as 'CartPole-v1', 'package.module:Class', a "
            "class, or a function that takes the env_config."
        )
    if (spec := registered(env)) is not None:
        return spec.id
    path = env if ":" in env else ":".join(env.rsplit(".", 1))
    if ":" not in path:
        raise ConfigError(
            f"env={env!r} is not registered with Gymnasium."
            f"{atari_hint(env) or nearest(env, gym.registry)} For one of your own give 'package.module:Class'."
        )
    found = load(path, "environment")
    if not callable(found):
        raise ConfigError(f"env={env!r} is {found!r}: expected a class or a function that takes the env_config.")
    return found  # type: ignore[no-any-return]


def _call(creator: Callable[..., Env], context: EnvContext) -> Env:
    """Pass the context as the one argument, or as keywords to what takes no positional argument."""
    with suppress(ValueError):  # a compiled callable without a signature
        try:
            inspect.signature(creator).bind(context)
        except TypeError:
            return creator(**context)
    return creator(context)


def _runs_natively(config: AlgorithmConfig, spec: gym.envs.registration.EnvSpec) -> bool:
    plain = not config.env_config and config.horizon is None and not config.no_done_at_end
    plain = plain and spec.vector_entry_point == CARTPOLE and not spec.additional_wrappers
    return plain and CartPoleVector.has_spaces(config.observation_space, config.action_space)


def _vectorised(
    config: AlgorithmConfig, spec: gym.envs.registration.EnvSpec, num_envs: int, *, one_by_one: bool
) -> gym.vector.VectorEnv[Any, Any, Any] | None:
    """The form that its author registered for many columns, or None to step single environments one by one.

    These it replaces only where that changes nothing but the speed: with the same spaces and none of `LOOP_SETTINGS`.
    """
    if spec.vector_entry_point in (None, CARTPOLE) or spec.additional_wrappers:
        return None
    asked = {key: getattr(config, key) for key in LOOP_SETTINGS if getattr(config, key)}
    if one_by_one:
        who: dict[str, Any] = {"callbacks": config.callbacks_class, "output": config.output}
        who |= {"record_env": config.record_env, "render_env": config.render_env}
        asked |= {key: value for key, value in who.items() if value}
    if config.env_task_fn is not None:
        asked["env_task_fn"] = config.env_task_fn
    if spec.entry_point is None and asked:
        settings = ", ".join(f"{key}={value!r}" for key, value in asked.items())
        raise ConfigError(
            f"{settings}: environment {spec.id!r} is registered in its vectorised form alone, which does not know "
            "this. Leave it out, or register a single environment (entry_point) too."
        )
    if spec.entry_point is not None and (num_envs == 1 or is_atari(config) or asked):
        return None
    with _making(spec.id, config.env_config):
        env = gym.make_vec(spec.id, num_envs, "vector_entry_point", **config.env_config)
    if spec.entry_point is not None and not _same_spaces(config, env):
        logger.info("environment %r has other spaces in its vectorised form: it is stepped one by one.", spec.id)
        env.close()
        return None
    if not config.disable_env_checking:
        _check(FirstColumn(env), spec.id, config)
    return env


def _same_spaces(config: AlgorithmConfig, env: gym.vector.VectorEnv[Any, Any, Any]) -> bool:
    single = _created(config, EnvContext(config.env_config))
    spaces = single.observation_space, single.action_space
    single.close()
    return spaces == (env.single_observation_space, env.single_action_space)
