"""TorchRL's SAC: steps per second once learning has started.

Built as its own example of SAC is, with losses of torchrl.objectives and one optimizer for all of them.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import DoubleToFloat, TransformedEnv
from torchrl.envs.libs.gym import GymEnv
from torchrl.envs.utils import ExplorationType
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

from benchmarks.peers.protocol import answer, arguments, measure

CALL_STEPS = 200


class Trainer:
    """One gradient step of everything per environment step."""

    def __init__(self, args: dict[str, Any]) -> None:
        torch.manual_seed(args["seed"])
        env = TransformedEnv(GymEnv(args["env"]), DoubleToFloat())
        env.set_seed(args["seed"])
        actor, critic = networks(env, args["hiddens"])
        self.loss = SACLoss(actor, critic, loss_function="l2")
        self.loss.make_value_estimator(gamma=0.99)
        self.targets = SoftUpdate(self.loss, tau=0.005)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=3e-4)
        self.replay = TensorDictReplayBuffer(storage=LazyTensorStorage(args["buffer"]), batch_size=args["batch"])
        collector = Collector(
            env,
            actor,
            frames_per_batch=1,
            total_frames=-1,
            init_random_frames=args["learning_starts"],
            auto_register_policy_transforms=False,
        )
        self.collected = iter(collector)
        for _ in range(args["learning_starts"]):
            self.replay.extend(next(self.collected))

    def iteration(self) -> int:
        """Make some steps and learn from a batch after each; return their number."""
        for _ in range(CALL_STEPS):
            self.replay.extend(next(self.collected))
            losses = self.loss(self.replay.sample())
            sum(losses[name] for name in ("loss_actor", "loss_qvalue", "loss_alpha")).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.targets.step()
        return CALL_STEPS


def networks(env: TransformedEnv, hiddens: list[int]) -> tuple[ProbabilisticActor, ValueOperator]:
    """Return the actor and one critic, which the loss has twice."""
    spec = env.action_spec_unbatched
    actions = spec.shape[-1]
    observations = env.observation_spec_unbatched["observation"].shape[-1]
    layers = MLP(in_features=observations, out_features=2 * actions, num_cells=hiddens, activation_class=torch.nn.ReLU)
    parameters = TensorDictModule(
        torch.nn.Sequential(layers, NormalParamExtractor()), in_keys=["observation"], out_keys=["loc", "scale"]
    )
    actor = ProbabilisticActor(
        parameters,
        spec=spec,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high, "tanh_loc": False},
        default_interaction_type=ExplorationType.RANDOM,
        return_log_prob=False,
    )
    values = MLP(in_features=observations + actions, out_features=1, num_cells=hiddens, activation_class=torch.nn.ReLU)
    return actor, ValueOperator(values, in_keys=["action", "observation"])


if __name__ == "__main__":
    ARGS = arguments()
    TRAINER = Trainer(ARGS)
    answer(measure(TRAINER.iteration, ARGS["measure_s"], warmup=3), "torchrl", "torch", "gymnasium")
