"""Importance weighted actor-learner architecture (Espeholt et al. 2018): workers that never wait for the learner.

Rollout [T, B] by older weights -> queue -> V-trace advantages -> one step of the policy gradient -> new weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from reef.algorithms.a2c import A2CLearner
from reef.algorithms.asynchronous import AsynchronousConfig
from reef.batch import Rollout
from reef.config import Scheduled, default, setting
from reef.config.ignored import Network, ignored
from reef.config.refusals import Refusal
from reef.learn.device import to_device
from reef.learn.learner_queue import FragmentReplay, LearnerQueue
from reef.learn.minibatches import Rows
from reef.learn.sequences import Sequences
from reef.math.vtrace import vtrace
from reef.nn.gradients import Columns
from reef.run.algorithm import Algorithm
from reef.run.checkpoint import restoring
from reef.run.flows.async_rollouts import async_rollouts
from reef.run.flows.recipients import Recipients
from reef.trees import require_like
from reef.types import Array, PolicyId, State, Stats

OPTIMIZER = "the optimizer is chosen by optimizer, for example {type: RMSpropTF, eps: 0.1}"
NO_AGGREGATION = "the driver puts the batches together"
NO_TIMEOUT = "the flow waits for whichever comes first, fragments or the learner; sample_timeout_s limits a fragment"


class IMPALAConfig(AsynchronousConfig):
    """Settings of IMPALA."""

    algorithm: ClassVar[str] = "IMPALA"
    algorithm_class: ClassVar[str] = "reef.algorithms.impala:IMPALA"
    of_all_policies: ClassVar[tuple[str, ...]] = (
        *AsynchronousConfig.of_all_policies,
        *("learner_queue_size", "broadcast_interval", "num_sgd_iter", "minibatch_buffer_size"),
        *("replay_proportion", "replay_buffer_num_slots"),
    )
    refusals: ClassVar[Mapping[str, Refusal]] = {
        **AsynchronousConfig.refusals,
        "num_aggregation_workers": Refusal("training", 0, NO_AGGREGATION),
        "max_requests_in_flight_per_aggregator_worker": Refusal("training", 2, NO_AGGREGATION),
        "timeout_s_aggregator_manager": Refusal("training", 0.0, NO_AGGREGATION),
        "num_multi_gpu_tower_stacks": Refusal("training", 1, "each learner has one GPU; set num_learner_workers"),
        "learner_queue_timeout": Refusal("training", 300, NO_TIMEOUT),
        "timeout_s_sampler_manager": Refusal("training", 0.0, NO_TIMEOUT),
        "opt_type": Refusal("training", "adam", OPTIMIZER),
        "decay": Refusal("training", 0.99, OPTIMIZER),
        "momentum": Refusal("training", 0.0, OPTIMIZER),
        "epsilon": Refusal("training", 0.1, OPTIMIZER),
        "vtrace_drop_last_ts": Refusal("training", False, "the last step is bootstrapped and learned from"),
    }

    lr: Scheduled = default(5e-4)
    grad_clip: float | None = default(40.0)
    train_batch_size: int = default(500)
    rollout_fragment_length: int | Literal["auto"] = default(50)
    min_sample_timesteps_per_iteration: int | None = default(4000)
    vf_loss_coeff: float = default(0.5)
    entropy_coeff: float | list[list[float]] = default(0.01)
    normalize_advantages: bool = default(False)
    vtrace: bool = setting(True, "Correct for the age of the weights that sampled; false estimates advantages by GAE.")
    vtrace_clip_rho_threshold: float = setting(
        1.0, "Largest likelihood ratio in the value targets (rho in the paper).", above=0.0
    )
    vtrace_clip_pg_rho_threshold: float = setting(
        1.0, "Largest likelihood ratio in the policy gradient (rho of section 4.2).", above=0.0
    )
    learner_queue_size: int = setting(
        16, "Train batches that may wait for the learner; one more drops the oldest.", minimum=1
    )
    broadcast_interval: int = setting(1, "Updates between two publications of the weights.", minimum=1, unit="updates")
    num_sgd_iter: int = setting(1, "Passes over each train batch", minimum=1)
    minibatch_buffer_size: int = setting(
        1,
        "Train batches that are learned from in turn; one that had num_sgd_iter passes is replaced by the next.",
        minimum=1,
        unit="batches",
    )
    replay_proportion: float = setting(
        0.0,
        "Old fragments that are mixed into the train batches for each new one; on average, if a fraction.",
        minimum=0.0,
    )
    replay_buffer_num_slots: int = setting(
        0, "Newest fragments from which the old ones are drawn.", minimum=0, unit="fragments"
    )

    @property
    def weighs_actions(self) -> bool:
        """By V-trace."""
        return self.vtrace

    @property
    def passes_per_update(self) -> int:
        """Gradient steps along one estimate of the advantages; V-trace makes a new one for each pass."""
        return 1

    def problems(self) -> Iterator[str]:
        """Yield contradictions between these settings."""
        yield from super().problems()
        if self.replay_proportion and not self.replay_buffer_num_slots:
            yield (
                f"replay_proportion={self.replay_proportion}: no old fragment is kept with replay_buffer_num_slots=0. "
                "Set it to 1 or more."
            )
        if self.max_staleness is not None:
            yield from self._staleness_problems(self.max_staleness)

    def _staleness_problems(self, limit: int) -> Iterator[str]:
        """A limit below what these settings make of every batch would drop all of them."""
        updates = self.num_sgd_iter // self.passes_per_update * self.minibatch_buffer_size
        for age, why in (
            (self.broadcast_interval - 1, f"broadcast_interval={self.broadcast_interval} publishes so old weights"),
            (updates - 1, f"a batch is learned from over {updates} updates (num_sgd_iter, minibatch_buffer_size)"),
            (min(self.replay_proportion, 1), "replay_proportion learns from fragments of earlier updates"),
        ):
            if limit < age:
                yield f"max_staleness={limit}: {why}. Set it to {math.ceil(age)} or more."

    def ignored_settings(self, network: Network) -> Iterator[str]:
        """Yield notes for limits of ratios that are not computed, and for batches that are not learned from again."""
        yield from super().ignored_settings(network)
        if not self.vtrace:
            limits = "vtrace_clip_rho_threshold", "vtrace_clip_pg_rho_threshold"
            yield from ignored(self, "without vtrace", *limits)
        if self.num_sgd_iter == 1:
            yield from ignored(self, "with num_sgd_iter=1", "minibatch_buffer_size")
        if not self.replay_proportion:
            yield from ignored(self, "without replay_proportion", "replay_buffer_num_slots")


class IMPALALearner(A2CLearner):
    """A2C's loss, with advantages and value targets by V-trace."""

    config: IMPALAConfig

    @property
    def target_layout(self) -> Rows | Sequences:
        """Reads rollouts with the policy whose returns are estimated, here the one in training."""
        return self.layout

    def prepare(self, batch: Rollout) -> Columns:
        """Add the log-likelihood of each action by that policy, and as `target_dist_inputs` its distribution."""
        inputs = self.target_layout.dist_inputs(batch)
        extras = {"target_logp": self._logp(inputs, batch.actions), "target_dist_inputs": inputs}
        return super().prepare(replace(batch, extras=batch.extras | extras))

    def _logp(self, dist_inputs: Array, actions: Array) -> Array:
        """[T, B, D] and [T, B, *action] -> [T, B]."""
        inputs, taken = (to_device(array, self.device).flatten(0, 1) for array in (dist_inputs, actions))
        logp: Array = self.policy.dist_class(inputs).logp(taken).cpu().numpy()
        return logp.reshape(actions.shape[:2])

    def estimate(self, batch: Rollout, values: Array, next_values: Array) -> tuple[Array, Array]:
        """Advantages and value targets, both [T, B], by V-trace."""
        config = self.config
        if not config.vtrace:
            return super().estimate(batch, values, next_values)
        return vtrace(
            batch.extras["target_logp"] - batch.extras["action_logp"],
            batch.rewards,
            values,
            next_values,
            batch.terminated,
            batch.truncated,
            config.gamma,
            self.trace_decay,
            config.vtrace_clip_rho_threshold,
            config.vtrace_clip_pg_rho_threshold,
            batch.mask,
        )


class IMPALA(Algorithm):
    """Workers sample with the weights they have, the learner takes the oldest batch, and publishes its weights."""

    config: IMPALAConfig
    config_class = IMPALAConfig
    learner_class = IMPALALearner

    def setup(self) -> None:
        """Create the queue before the learner, and what knows whom weights are worth sending to."""
        config, proportion = self.config, self.config.replay_proportion
        self.queue = LearnerQueue(
            config.learner_queue_size,
            config.enough_steps,
            slots=config.minibatch_buffer_size,
            updates_per_batch=config.num_sgd_iter // config.passes_per_update,
            max_staleness=config.max_staleness,
            replay=FragmentReplay(proportion, config.replay_buffer_num_slots, config.seed) if proportion else None,
        )
        self.recipients = Recipients()
        self.counters["num_batches_dropped"] = 0

    def training_step(self) -> dict[PolicyId, Stats]:
        """One update of the asynchronous flow."""
        return async_rollouts(self, self.queue, self.recipients, self.config.broadcast_interval)

    def state(self) -> State:
        """The algorithm's state with the queue, and the weights of the workers where the learner's are newer."""
        acting = self.workers.local_worker().get_weights() if self.queue.unpublished else {}
        return super().state() | {"queue": self.queue.state(), "acting": acting}

    def set_state(self, state: State) -> None:
        """Restore what `state` returned."""
        super().set_state(state)
        with restoring("its queue"):
            require_like(state, {"queue": {"unpublished": 0, "batches": []}, "acting": {}}, "")
            self.queue.set_state(state["queue"])
            if state["acting"]:
                timestep = self.workers.local_worker().timestep
                self.workers.set_weights(state["acting"], self.policy_version, timestep)
