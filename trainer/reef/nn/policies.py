"""Policies: a network that says how to act, and its action distribution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reef.config import AlgorithmConfig, ModelConfig
from reef.config.loading import load
from reef.errors import ConfigError, nearest
from reef.nn.array_mlp import ArrayMLP
from reef.nn.custom import custom_module
from reef.nn.distributions import ActionDistribution, DistributionMaker
from reef.nn.encoders import Encoder, ImageEncoder
from reef.nn.flat import FlatParameters, Settled
from reef.nn.outline import Outline, outline_of
from reef.nn.stacked import StackedMLP
from reef.spaces import Layout, Space
from reef.types import Array

PullBack = Callable[[Tensor, Tensor], None]  # sets parameters' gradients from those of outputs [N, D] and values [N]

FOR_VECTORS = ("model.fcnet_hiddens", "model.fcnet_activation")
FOR_IMAGES = ("model.conv_filters", "model.conv_activation")
FOR_OUR_ENCODER = (*FOR_VECTORS, *FOR_IMAGES, "model.post_fcnet_hiddens")
FOR_ACTOR_CRITICS = ("model.free_log_std", "model.vf_share_layers")


class Policy(nn.Module):
    """A network that acts. Observations come flat, as the observation layout says: [N, *obs]."""

    acting_extras: ClassVar[tuple[str, ...]] = ()  # what a worker records with each step, see RolloutWorker

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """Subclasses build their layers, then call `finish`."""
        super().__init__()
        self.config = config
        self.observation_layout = Layout.of(observation_space)
        self.action_layout = Layout.of(action_space)
        self.dist_class = DistributionMaker(self.action_layout)
        self.set_by_hand = False  # whether its weights were set since the learners saw them

    def outline(self) -> Outline:
        """What its weights are for: a checkpoint goes into no other network."""
        if self.config.model.custom_model:
            return outline_of(self, {})
        settings = self.config.model.to_dict().items()
        return outline_of(self, {f"model.{key}": value for key, value in settings if not key.startswith("custom_")})

    @property
    def products(self) -> int:
        """Multiplications for one observation: every parameter once, those of convolutions at every place."""
        again = sum(module.again for module in self.modules() if isinstance(module, ImageEncoder))
        return self.flat.vector.numel() + again

    def finish(self, device: torch.device | str = "cpu") -> None:
        """Move to `device` and lay the parameters out as one vector: `self.flat`."""
        self.to(device)
        self.device = torch.device(device)
        self.flat = FlatParameters(self.parameters())
        for module in self.modules():
            if isinstance(module, StackedMLP):
                module.settle()

    def unread(self) -> Iterator[str]:
        """Settings that were given and that this network does not read, a text for each with the reason."""
        yield from ()

    def compile_acting(self, **options: Any) -> None:
        """Compile `dist_inputs`; `options` go to `torch.compile`."""
        self.dist_inputs = torch.compile(self.dist_inputs, **options)  # type: ignore[method-assign]

    @abstractmethod
    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D], what the action distribution is made from."""

    def vjp(self, obs: Tensor) -> tuple[Tensor, Tensor, PullBack]:
        """As `forward` of an actor-critic, with the function that goes back, once (vector-Jacobian product).

        It adds to the parameters' gradients. Both may be called in inference mode.
        """
        with torch.inference_mode(False), torch.enable_grad():
            outputs, values = self(obs)

        def pull_back(of_outputs: Tensor, of_values: Tensor) -> None:
            with torch.inference_mode(False):
                ends = [(outputs, of_outputs.clone()), (values, of_values.clone())]  # clones are no inference tensors
                trained = [(end, gradient) for end, gradient in ends if end.requires_grad]
                torch.autograd.backward([end for end, _ in trained], [gradient for _, gradient in trained])

        return outputs.detach(), values.detach(), pull_back

    def act(self, obs: Array, generator: np.random.Generator | None = None) -> ActionDistribution:
        """[N, *obs] -> how to act there; with a `generator` noisy weights, where there are any, are drawn anew."""
        with torch.inference_mode():
            inputs = self.dist_inputs(torch.as_tensor(obs, device=self.device))
            return ActionDistribution(self.dist_class, inputs.cpu().numpy())

    def compute_actions(
        self, obs: Array, *, explore: bool = False, generator: np.random.Generator | None = None
    ) -> tuple[Array, dict[str, Array]]:
        """Act on a batch of flat observations [N, *obs]; returns actions [N, *action] and `action_dist_inputs`.

        Raises ConfigError for observations of another shape.
        """
        rows, shape = np.asarray(obs, self.observation_layout.dtype), self.observation_layout.shape
        if rows.shape[1:] != shape or rows.ndim != 1 + len(shape):
            raise ConfigError(f"the observations have shape {rows.shape}, expected {('N', *shape)}: a batch of them.")
        distribution = self.act(rows)
        actions = distribution.sample(generator or np.random.default_rng()) if explore else distribution.deterministic()
        return actions, {"action_dist_inputs": distribution.inputs}

    @property
    def model(self) -> nn.Module:
        """The network itself."""
        return self

    def get_weights(self) -> dict[str, Array]:
        """Copies of all parameters by name."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.named_parameters()}

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Overwrite parameters by name; ConfigError, before any change, names all that does not fit.

        Of the policy that `Algorithm.get_policy` returns, the learners take them over before they are used again.
        """
        own = dict(self.named_parameters())
        if wrong := [*weight_problems(own, weights)]:
            raise ConfigError("weights do not fit this policy:\n" + "\n".join(f"  {problem}" for problem in wrong))
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(torch.from_numpy(np.array(weights[name])))
        self.set_by_hand = True

    def import_weights(self, weights: Mapping[str, Array], names: Mapping[str, str] | None = None) -> None:
        """As `set_weights`, with weights from a file; `names` translates its names into those of this policy.

        The names of a module that is wrapped here, or was wrapped there, are found without.
        """
        unknown = sorted((names or {}).keys() - weights.keys())
        if unknown:
            raise ConfigError(f"names: {unknown} are not among the weights, which are {sorted(weights)}.")
        translated = {(names or {}).get(name, name): value for name, value in weights.items()}
        own = [name for name, _ in self.named_parameters()]
        with_tied = [name for name, _ in self.named_parameters(remove_duplicate=False)]
        for strip, add in (("", ""), ("", "module."), ("module.", ""), ("_orig_mod.", ""), ("_orig_mod.", "module.")):
            found = {add + name.removeprefix(strip): value for name, value in translated.items()}
            if found.keys() == set(own) or found.keys() == set(with_tied):
                found = {name: found[name] for name in own}
                break
        else:
            found = translated
        self.set_weights(found)


def weight_problems(own: Mapping[str, nn.Parameter], weights: Mapping[str, Array]) -> Iterator[str]:
    """Why `weights` cannot be those of a policy with its `own` parameters, a line for each name."""
    for name, parameter in own.items():
        expected = f"expected shape {list(parameter.shape)}"
        if name not in weights:
            yield f"{name}: is missing, {expected}.{nearest(name, weights.keys() - own.keys())}"
        elif (given := np.shape(weights[name])) != parameter.shape:
            yield f"{name}: has shape {list(given)}, {expected}. Give weights of the same spaces and model settings."
        elif parameter.requires_grad and not np.isfinite(weights[name]).all():
            yield f"{name}: has values that are NaN or infinite, expected finite numbers."
    for name in sorted(weights.keys() - own.keys()):
        yield f"{name}: is no parameter of this policy, leave it out.{nearest(name, own.keys() - weights.keys())}"


class ActorCritic(Policy):
    """An actor and a critic: separate branches of one batched encoder, or one shared branch (`vf_share_layers`)."""

    acting_extras = ("action_dist_inputs", "action_logp")

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """Made from `config.model`."""
        super().__init__(config, observation_space, action_space)
        model: ModelConfig = config.model
        self.encoder = Encoder(self.observation_layout, model, branches=1 if model.vf_share_layers else 2)
        gaussian = self.dist_class.gaussian
        self.log_std: nn.Parameter | None = None
        outputs = self.dist_class.num_inputs
        if model.free_log_std:
            if gaussian.start == gaussian.stop:
                raise ConfigError("model.free_log_std=True needs a Box action space; set it to False")
            outputs = gaussian.start
            self.log_std = nn.Parameter(torch.zeros(outputs))
        self.pi = _linear(self.encoder.out_features, outputs, gain=0.01)
        self.vf = _linear(self.encoder.out_features, 1, gain=1.0)
        self.heads: tuple[Settled, Settled] | None = None  # `pi` and `vf`, once settled
        self.by_hand = False  # see `vjp`
        self.array_actor: ArrayMLP | None = None  # see `act`

    def finish(self, device: torch.device | str = "cpu") -> None:
        """As every policy; and keep the last layers at hand."""
        super().finish(device)
        pi, _ = self.heads = Settled.of(self.pi), Settled.of(self.vf)
        ours = type(self.encoder) is Encoder
        self.by_hand = ours and self.encoder.has_slope and self._inherits("forward", "_with_log_std")
        mlp = self.encoder.mlp
        of_array = mlp.activation.of_array if ours and self.encoder.plain and self.device.type == "cpu" else None
        if of_array is not None and self._inherits("dist_inputs", "_with_log_std"):
            self.array_actor = ArrayMLP(mlp.singles[0], (pi.weight.t(), pi.bias), of_array)

    def _inherits(self, *names: str) -> bool:
        return all(getattr(type(self), name) is getattr(ActorCritic, name) for name in names)

    def compile_acting(self, **options: Any) -> None:
        """As every policy's; what is compiled is what acts."""
        super().compile_acting(**options)
        self.array_actor = None

    def act(self, obs: Array, generator: np.random.Generator | None = None) -> ActionDistribution:
        """As every policy's; for a few observations of our own perceptrons in NumPy."""
        if self.array_actor is None or len(obs) > self.array_actor.most_rows:
            return super().act(obs, generator)
        inputs = self.array_actor(obs)
        if self.log_std is not None:
            means, inputs = inputs, np.empty((len(obs), 2 * inputs.shape[-1]), np.float32)
            inputs[:, : means.shape[-1]] = means
            inputs[:, means.shape[-1] :] = self.log_std.detach().numpy()
        return ActionDistribution(self.dist_class, inputs)

    def unread(self) -> Iterator[str]:
        """As every policy."""
        yield from given_for_other_observations(self.config, self.encoder, *FOR_VECTORS)

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D], by the actor alone: acting needs no critic."""
        features = self.encoder.single(0, obs)
        if self.heads is None or torch.is_grad_enabled():
            return self._with_log_std(F.linear(features, self.pi.weight, self.pi.bias))
        pi, _ = self.heads
        return self._with_log_std(F.linear(features, pi.weight, pi.bias))

    def values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N] state values, by the critic alone."""
        values: Tensor = self.vf(self.encoder.single(self.encoder.branches - 1, obs))
        return values.squeeze(-1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[N, *obs] -> distribution inputs [N, D] and state values [N]."""
        branches = self.encoder(obs).unbind()  # indexing would cost a gradient of the size of all branches each
        outputs = F.linear(branches[0], self.pi.weight, self.pi.bias)
        values = F.linear(branches[-1], self.vf.weight, self.vf.bias)
        return self._with_log_std(outputs), values.squeeze(-1)

    def vjp(self, obs: Tensor) -> tuple[Tensor, Tensor, PullBack]:
        """As every policy's; for our own perceptrons written out, and the gradients are overwritten.

        Autograd costs, at the sizes of reinforcement learning, as much as the arithmetic. Hooks are not called.
        """
        if self.heads is None or not self.by_hand or self.flat.is_frozen:
            return super().vjp(obs)
        pi, vf = self.heads
        hidden = self.encoder.trace(obs)
        branches = hidden[-1].unbind()
        outputs = self._with_log_std(F.linear(branches[0], pi.weight, pi.bias))
        values = F.linear(branches[-1], vf.weight, vf.bias)
        return outputs, values.squeeze(-1), partial(self._pull_back, hidden, branches)

    def _pull_back(
        self, hidden: list[Tensor], branches: Sequence[Tensor], of_inputs: Tensor, of_values: Tensor
    ) -> None:
        assert self.heads is not None
        pi, vf = self.heads
        of_outputs = of_inputs if self.log_std is None else of_inputs[:, : len(pi.bias)]
        of_actor = pull_back_linear(pi, branches[0], of_outputs)
        of_critic = pull_back_linear(vf, branches[-1], of_values.unsqueeze(-1))
        if self.log_std is not None:
            torch.sum(of_inputs[:, len(pi.bias) :], 0, out=self.log_std.grad)
        shared = len(branches) == 1
        of_features = (of_actor + of_critic).unsqueeze(0) if shared else torch.stack([of_actor, of_critic])
        self.encoder.mlp.pull_back(hidden, of_features)

    def _with_log_std(self, outputs: Tensor) -> Tensor:
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std.expand_as(outputs)], dim=-1)


class CustomActorCritic(Policy):
    """A user's module that maps observations to (distribution inputs [N, D], values [N])."""

    acting_extras = ActorCritic.acting_extras

    def __init__(self, config: AlgorithmConfig, observation_space: Space, action_space: Space) -> None:
        """`model.custom_model` is called with the spaces, the number of outputs D and `model.custom_model_config`."""
        super().__init__(config, observation_space, action_space)
        self.module = custom_module(config, observation_space, action_space, self.dist_class.num_inputs, critic=True)

    def unread(self) -> Iterator[str]:
        """As every policy."""
        yield from given_beside_custom_model(self.config)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """[N, *obs] -> distribution inputs [N, D] and state values [N]."""
        outputs, values = self.module(obs)
        return outputs, values.reshape(-1)

    def dist_inputs(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N, D]."""
        return self.forward(obs)[0]

    def values(self, obs: Tensor) -> Tensor:
        """[N, *obs] -> [N]."""
        return self.forward(obs)[1]


def given(config: AlgorithmConfig, reason: str, *keys: str) -> Iterator[str]:
    """A text for each of the settings (dotted keys) whose value is not the algorithm's default, with the `reason`."""
    for key in keys:
        name, _, part = key.partition(".")
        value, usual = getattr(config, name), config.declared[name].fresh()
        if part:
            value, usual = getattr(value, part), getattr(usual, part)
        if value != usual:
            yield f"{key}={value!r} has no effect {reason}."


def given_for_other_observations(config: AlgorithmConfig, encoder: Encoder, *for_vectors: str) -> Iterator[str]:
    """What was `given` for another encoder than the observations have; `for_vectors`: settings of an MLP."""
    if encoder.has_image:
        advice = "Use model.post_fcnet_hiddens and model.conv_activation"
        yield from given(config, f"with an image in the observations. {advice}", *for_vectors)
    else:
        advice = "Use model.fcnet_hiddens and model.fcnet_activation"
        yield from given(config, f"without an image in the observations. {advice}", *FOR_IMAGES)


def given_beside_custom_model(config: AlgorithmConfig, *keys: str) -> Iterator[str]:
    """What was `given` of the network that a custom model takes the place of; `keys`: those of the algorithm."""
    reason = "beside model.custom_model, which is the whole network. Its own settings are model.custom_model_config"
    yield from given(config, reason, *FOR_OUR_ENCODER, *FOR_ACTOR_CRITICS, *keys)


def actor_critic(
    config: AlgorithmConfig, observation_space: Space, action_space: Space
) -> ActorCritic | CustomActorCritic:
    """The actor-critic that the settings ask for."""
    make = CustomActorCritic if config.model.custom_model else ActorCritic
    return make(config, observation_space, action_space)


def pull_back_linear(layer: Settled, x: Tensor, gradient: Tensor) -> Tensor:
    """Overwrite the parameters' gradients from that [N, out] of the output; returns that of the input `x` [N, in]."""
    torch.mm(gradient.t(), x, out=layer.weight_gradient)
    torch.sum(gradient, 0, out=layer.bias_gradient)
    return gradient @ layer.weight


def _linear(in_features: int, out_features: int, gain: float) -> nn.Linear:
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def make_policy(config: AlgorithmConfig, observation_space: Space, action_space: Space) -> Policy:
    """The policy of the configured algorithm, as its `policy_class` names it."""
    return load(config.policy_class, what="policy_class")(config, observation_space, action_space)  # type: ignore[no-any-return]
