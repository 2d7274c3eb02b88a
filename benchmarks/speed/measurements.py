"""What is measured: for every part the cases, one script call each, in the order in which they take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SCRIPTS = {
    "reef": "benchmarks.peers.reef",
    "reef compiled": "benchmarks.peers.reef",
    "bare loop": "benchmarks.bare_ppo",
    "cleanrl": "benchmarks.peers.cleanrl_style_ppo",
    "rllib": "benchmarks.peers.rllib",
    "sb3": "benchmarks.peers.stable_baselines3_ppo",
}
SAC_SCRIPTS = {
    "rllib": "benchmarks.peers.rllib",
    "tianshou": "benchmarks.peers.tianshou_sac",
    "torchrl": "benchmarks.peers.torchrl_sac",
    "sb3": "benchmarks.peers.stable_baselines3_off_policy",
    "cleanrl": "benchmarks.peers.cleanrl_style_sac",
    "reef": "benchmarks.peers.reef",
}
TD3_SCRIPTS = {
    "sb3": "benchmarks.peers.stable_baselines3_off_policy",
    "cleanrl": "benchmarks.peers.cleanrl_style_td3",
    "reef": "benchmarks.peers.reef",
}
A2C_SCRIPTS = {
    "sb3": "benchmarks.peers.stable_baselines3_a2c",
    "cleanrl": "benchmarks.peers.cleanrl_style_a2c",
    "reef": "benchmarks.peers.reef",
}
ONE_THREAD = {"threads": 1}  # without it everyone has as many as their own defaults say
RUNS = 3
PAIRED_RUNS = 7  # where a ratio near one is asked for: single runs differ by a tenth and more
RESTARTED = (1, 2)  # of two workers
ACTORS = (1, 2, 4, 8, 16, 32)
PPO = {
    "algorithm": "ppo",
    "env": "CartPole-v1",
    "num_envs": 8,
    "workers": 0,
    "batch": 4096,
    "minibatch": 128,
    "epochs": 10,
}
DQN = {
    "algorithm": "dqn",
    "env": "CartPole-v1",
    "num_envs": 8,
    "workers": 0,
    "batch": 64,
    "hiddens": [256, 256],
    "buffer": 50_000,
    "learning_starts": 1000,
    "steps_per_update": 4,
}
SAC = {
    "algorithm": "sac",
    "env": "Pendulum-v1",
    "num_envs": 1,
    "workers": 0,
    "batch": 256,
    "hiddens": [256, 256],
    "buffer": 100_000,
    "learning_starts": 100,
}
A2C_STEPS = (5, 20)
ASYNC_ENVS = ("CartPole-v1", "LunarLander-v3")
ASYNC_PEERS = {"impala": ("rllib", "reef"), "appo": ("rllib", "sample_factory", "reef")}
ASYNC_SCRIPTS = {
    "rllib": "benchmarks.peers.rllib",
    "sample_factory": "benchmarks.peers.sample_factory_appo",
    "reef": "benchmarks.peers.reef",
}
ES_WORKERS = (0, 1, 2)
ASYNC = {**PPO, "batch": 400, "fragment": 50, "hiddens": [64, 64]}
ES = {**PPO, "algorithm": "es", "episodes": 16, "hiddens": [16]}
IMPALA = {**PPO, "algorithm": "impala", "num_envs": 64, "batch": 4096, "hiddens": [256, 256]}
OFFLINE = {"batch": 2000, "hiddens": [64, 64], "updates": 25}
OFFLINE_SCRIPTS = {
    "rllib": "benchmarks.peers.rllib_offline",
    "bare loop": "benchmarks.peers.bare_bc",
    "reef": "benchmarks.peers.reef_offline",
}
APEX = {**DQN, "algorithm": "apex", "workers": 1}
# environments by name: those that compute for all of the worker's time, and one that sleeps for most of it
APEX_ENVS: dict[str, dict[str, Any]] = {env: {"env": env} for env in ASYNC_ENVS}
APEX_ENVS["steps that sleep"] = {"env": "benchmarks.peers.reef_scaling:Sleeping", "env_config": {"step_s": 0.0005}}
RECURRENT = {**PPO, "epochs": 2, "hiddens": [64], "lstm": 64, "sequence": 20}
TWO_AGENTS = {**PPO, "agents": 2}
WORKERS = (0, 1, 2)  # of two agents
SCALING = {"step_s": 0.005}  # of one environment
SLOWER = {"step_s": 0.02}  # with which many workers leave the processors of a small machine time
GPU_HIDDENS = (64, 256, 1024)
GPU_FORMS = {"CPU": {}, "GPU": {"gpus": 1}, "GPU compiled": {"gpus": 1, "compiled": True}}
TWO_LEARNERS = {"gpus": 0.5, "learners": 2}
WIDE = {**PPO, "num_envs": 4096, "batch": 4096 * 64, "minibatch": 32_768, "epochs": 1}


@dataclass(frozen=True)
class Case:
    """One script with its arguments; `name` is its key in the results."""

    name: str
    peer: str
    args: dict[str, Any]
    script: str = ""
    runs: int = RUNS
    limit_s: float = 180.0

    @property
    def module(self) -> str:
        """The script as `python -m` names it."""
        return self.script or SCRIPTS[self.peer]


def ppo() -> Iterator[Case]:
    """Whole training at the shared settings, in process and with two workers."""
    for minibatch in (128, 1024):
        args = {**PPO, "minibatch": minibatch, "measure_s": 5.0}
        for peer in ("rllib", "sb3", "cleanrl", "bare loop", "reef"):
            runs = PAIRED_RUNS if peer == "reef" else RUNS
            yield Case(f"{peer}, minibatch {minibatch}, one thread", peer, args | ONE_THREAD)
            yield Case(f"{peer}, minibatch {minibatch}", peer, args, runs=runs)
        two = {**args, "workers": 2}  # right after the one without, as the machine's own speed changes with time
        yield Case(f"reef, minibatch {minibatch}, 2 workers", "reef", two, runs=PAIRED_RUNS)
        yield Case(f"reef, minibatch {minibatch}, 2 workers ahead", "reef", {**two, "sample_async": True})
        compiled = {**args, "compiled": True}
        yield Case(f"reef compiled, minibatch {minibatch}", "reef compiled", compiled)
        yield Case(f"reef compiled, minibatch {minibatch}, one thread", "reef compiled", compiled | ONE_THREAD)
        yield Case(f"rllib, minibatch {minibatch}, 2 workers", "rllib", two)


def lunar() -> Iterator[Case]:
    """Two workers against none where stepping is dear; and two trainings at once, the limit of sharing one."""
    for minibatch in (128, 1024):
        args = {**PPO, "env": "LunarLander-v3", "minibatch": minibatch, "measure_s": 8.0}  # episodes differ much
        two = {**args, "workers": 2}
        yield Case(f"reef, minibatch {minibatch}, 0 workers", "reef", args, runs=PAIRED_RUNS)
        yield Case(f"reef, minibatch {minibatch}, 2 workers", "reef", two)
        ahead = {**two, "sample_async": True}
        yield Case(f"reef, minibatch {minibatch}, 2 workers ahead", "reef", ahead, runs=PAIRED_RUNS)
        yield Case(f"reef, minibatch {minibatch}, twice", "reef", args, "benchmarks.peers.reef_twice")


def dqn() -> Iterator[Case]:
    """One gradient step per four environment steps, in process and with two workers."""
    args = {**DQN, "measure_s": 5.0}
    yield Case("rllib", "rllib", args)
    yield Case("sb3", "sb3", args, "benchmarks.peers.stable_baselines3_dqn")
    yield Case("reef", "reef", args)
    for peer in ("rllib", "reef"):
        yield Case(f"{peer}, 2 workers", peer, {**args, "workers": 2})


def sac() -> Iterator[Case]:
    """One gradient step per environment step, with one thread each and with everyone's own defaults."""
    args = {**SAC, "measure_s": 5.0}
    for peer, script in SAC_SCRIPTS.items():
        yield Case(f"{peer}, one thread", peer, args | ONE_THREAD, script)
        yield Case(peer, peer, args, script)


def td3() -> Iterator[Case]:
    """TD3 and DDPG as SAC; the CleanRL-style file is TD3 alone."""
    for algorithm in ("td3", "ddpg"):
        args = {**SAC, "algorithm": algorithm, "measure_s": 5.0}
        for peer, script in TD3_SCRIPTS.items():
            if (algorithm, peer) != ("ddpg", "cleanrl"):
                yield Case(f"{algorithm}, {peer}, one thread", peer, args | ONE_THREAD, script)
                yield Case(f"{algorithm}, {peer}", peer, args, script)


def a2c() -> Iterator[Case]:
    """A2C with short rollouts of 8 environments, one thread each."""
    for steps in A2C_STEPS:
        args = {**PPO, "algorithm": "a2c", "steps": steps, "measure_s": 5.0}
        for peer, script in A2C_SCRIPTS.items():
            yield Case(f"{peer}, {steps} steps", peer, args | ONE_THREAD, script)


def asynchronous() -> Iterator[Case]:
    """IMPALA and APPO in process and with two workers."""
    for env in ASYNC_ENVS:
        for algorithm, peers in ASYNC_PEERS.items():
            for workers in (0, 2):
                args = {**ASYNC, "algorithm": algorithm, "env": env, "workers": workers, "measure_s": 5.0}
                for peer in peers:
                    name = f"{algorithm}, {env}, {peer}, {workers} workers"
                    yield Case(name, peer, args | ONE_THREAD, ASYNC_SCRIPTS[peer])


def es() -> Iterator[Case]:
    """ES in process and with two workers, beside ARS."""
    args = {**ES, "measure_s": 5.0}
    yield Case("sb3", "sb3", args | ONE_THREAD, "benchmarks.peers.stable_baselines3_ars")
    for workers in ES_WORKERS:
        yield Case(f"reef, {workers} workers", "reef", {**args, "workers": workers} | ONE_THREAD)


def offline() -> Iterator[Case]:
    """The learners of BC and MARWIL alone, on batches that were drawn before, and whole training."""
    for algorithm in ("bc", "marwil"):
        args = {**OFFLINE, "algorithm": algorithm, "measure_s": 5.0} | ONE_THREAD
        for peer, script in OFFLINE_SCRIPTS.items():
            if (algorithm, peer) != ("marwil", "bare loop"):
                yield Case(f"{algorithm}, {peer}, learner", peer, {**args, "learner_alone": True}, script)
        for peer in ("reef",) if algorithm == "bc" else ("rllib", "reef"):
            whole = {**args, "learner_alone": False}
            yield Case(f"{algorithm}, {peer}, training", peer, whole, OFFLINE_SCRIPTS[peer], limit_s=300.0)


def apex() -> Iterator[Case]:
    """Steps that one worker of Ape-X samples, beside the same job whose learning never starts."""
    for label, env in APEX_ENVS.items():
        for name, starts in (("sampling alone", 10**9), ("learning", 1000)):
            args = {**APEX, **env, "learning_starts": starts, "measure_s": 8.0}
            yield Case(f"{label}, {name}", "reef", args | ONE_THREAD, runs=PAIRED_RUNS)


def recurrent() -> Iterator[Case]:
    """PPO with an LSTM, with one thread each and with everyone's own defaults."""
    scripts = {**SCRIPTS, "sb3": "benchmarks.peers.stable_baselines3_recurrent"}
    for minibatch in (128, 1024):
        args = {**RECURRENT, "minibatch": minibatch, "measure_s": 5.0}
        for peer in ("rllib", "sb3", "reef"):
            yield Case(f"{peer}, minibatch {minibatch}, one thread", peer, args | ONE_THREAD, scripts[peer])
            yield Case(f"{peer}, minibatch {minibatch}", peer, args, scripts[peer])


def agents() -> Iterator[Case]:
    """PPO of two agents with a policy each, in process and with workers."""
    for minibatch in (128, 1024):
        for workers in WORKERS:
            args = {**TWO_AGENTS, "minibatch": minibatch, "workers": workers, "measure_s": 5.0}
            for peer in ("rllib", "reef"):
                yield Case(f"{peer}, minibatch {minibatch}, {workers} workers", peer, args)


def sampling() -> Iterator[Case]:
    """Sampling alone with 128 vectorised environments, against stepping and forward with nothing around."""
    args = {**PPO, "num_envs": 128, "batch": 128 * 64, "sampling_only": True, "measure_s": 3.0}
    for peer in ("bare loop", "reef"):
        yield Case(peer, peer, args)


def reward() -> Iterator[Case]:
    """Wall time to a mean reward of 450 on CartPole: each run has another seed."""
    args = {"reward": 450.0, "max_steps": 200_000, "document": "examples/cartpole-ppo.yaml"}
    yield Case("sb3", "sb3", args, "benchmarks.peers.stable_baselines3_reward", limit_s=400.0)
    yield Case("reef", "reef", args, "benchmarks.peers.reef_reward")


def memory() -> Iterator[Case]:
    """From process start to the end of the first iteration, and the peak memory of all processes."""
    for peer in ("rllib", "sb3", "reef"):
        yield Case(peer, peer, {**PPO, "measure_s": 1.0})


def actors() -> Iterator[Case]:
    """What every further worker costs."""
    for workers in ACTORS:
        yield Case(f"{workers} workers", "reef", {**PPO, "workers": workers, "measure_s": 2.0}, runs=1, limit_s=300.0)


def scaling() -> Iterator[Case]:
    """IMPALA with ever more workers, whose environments sleep."""
    for workers in ACTORS:
        args = {**SCALING, "workers": workers, "measure_s": 8.0}
        yield Case(f"{workers} workers", "reef", args, "benchmarks.peers.reef_scaling", runs=1, limit_s=300.0)
    for workers in (ACTORS[0], ACTORS[-1]):
        args = {**SLOWER, "workers": workers, "measure_s": 16.0}
        yield Case(f"{workers} slower workers", "reef", args, "benchmarks.peers.reef_scaling", runs=1, limit_s=300.0)


def restart() -> Iterator[Case]:
    """SIGKILL of one of two workers and of both, twice in a row, until they sample again."""
    for killed in RESTARTED:
        args = {"env": "CartPole-v1", "killed": killed, "times": 2}
        yield Case(f"{killed} of 2", "reef", args, "benchmarks.peers.reef_restart")


def store() -> Iterator[Case]:
    """Bytes through the object store."""
    yield Case("reef", "reef", PPO, "benchmarks.peers.reef_object_store", runs=1)


def wide() -> Iterator[Case]:
    """4,096 vectorised CartPoles with large minibatches."""
    args = {**WIDE, "measure_s": 4.0}
    for peer in ("bare loop", "reef"):
        yield Case(peer, peer, args)


def limits() -> Iterator[Case]:
    """Raw stepping, a forward pass, the bare SGD."""
    yield Case("limits", "bare loop", {"measure_s": 0.5}, "benchmarks.peers.limits")


def gpu() -> Iterator[Case]:
    """Learning on a GPU, eager and compiled, beside learning on the CPU; and two learners that share a GPU."""
    common = {"measure_s": 2.0}
    for hidden in GPU_HIDDENS:
        shape = {"hiddens": [hidden, hidden], "num_envs": 64, "batch": 16_384, "minibatch": 4096}
        args = {**PPO, **shape, **common}
        for form, how in GPU_FORMS.items():
            yield Case(f"ppo, {hidden}, {form}", "reef", args | how, runs=1)
    yield Case(f"ppo, {GPU_HIDDENS[-1]}, two learners", "reef", args | TWO_LEARNERS, runs=1)
    for algorithm, args in {"sac": SAC, "impala": IMPALA}.items():
        for form in ("CPU", "GPU") if algorithm == "sac" else GPU_FORMS:  # SAC's learner cannot be compiled
            how = GPU_FORMS[form]
            yield Case(f"{algorithm}, 256, {form}", "reef", {**args, **common} | how, runs=1)


def callbacks() -> Iterator[Case]:
    """PPO and DQN with callbacks that do nothing beside the same without."""
    for name, args in {"PPO": {**PPO, "epochs": 2}, "DQN": DQN}.items():
        yield Case(name, "reef", {**args, "measure_s": 20.0} | ONE_THREAD, "benchmarks.peers.reef_callbacks")


def looks() -> Iterator[Case]:
    """One look of the operator at each of 1,000 idle jobs."""
    yield Case("reef", "reef", {"jobs": 1000}, "benchmarks.scale.looks", runs=5)


def profile() -> Iterator[Case]:
    """Where the time goes."""
    script = "benchmarks.peers.reef_profile"
    for minibatch in (128, 1024):
        yield Case(f"minibatch {minibatch}", "reef", {**PPO, "minibatch": minibatch, "measure_s": 4.0}, script, runs=1)
    yield Case("4,096 environments", "reef", {**WIDE, "measure_s": 4.0}, script, runs=1)
    yield Case("DQN", "reef", {**DQN, "measure_s": 4.0}, script, runs=1)


PARTS: dict[str, Callable[[], Iterator[Case]]] = {
    part.__name__: part
    for part in (
        ppo,
        lunar,
        dqn,
        sac,
        td3,
        a2c,
        asynchronous,
        es,
        offline,
        apex,
        recurrent,
        agents,
        sampling,
        reward,
        memory,
        actors,
        scaling,
        restart,
        store,
        wide,
        limits,
        profile,
        callbacks,
        gpu,
        looks,
    )
}
NEED_A_GPU = {"gpu"}
