"""benchmarks/RESULTS.md from the raw numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from benchmarks.scale.report import looks, scale, scale_targets
from benchmarks.speed.algorithms import algorithm_targets, algorithms
from benchmarks.speed.measurements import ACTORS, GPU_FORMS, GPU_HIDDENS, PAIRED_RUNS, RESTARTED, WORKERS
from benchmarks.speed.numbers import Numbers, Spread, ratio
from benchmarks.speed.scaling import scaling
from benchmarks.speed.tables import row, table
from benchmarks.speed.targets import MINIBATCHES, NAMES, PPO_CASES, SAC_PEERS, targets

LUNAR = {
    "0 workers": "0",
    "2 workers": "2",
    "2 workers ahead": "2 that sample ahead",
    "twice": "two trainings with 0 at once, their sum",
}
CALLBACKS = ("empty class", "one hook")
REMARKS = Path(__file__).with_name("remarks.md")


def report(results: dict[str, Any]) -> str:
    """Return RESULTS.md as text."""
    numbers = Numbers(results)
    parts = (
        _ppo,
        _lunar,
        _dqn,
        _sac,
        algorithms,
        _recurrent,
        _agents,
        _sampling,
        _reward,
        _memory,
        _actors,
        scaling,
        _restart,
        _store,
        _wide,
        _limits,
        _profile,
        _callbacks,
        _gpu,
        scale,
        looks,
    )
    sections = (_head, _targets, *parts)
    lines = [line for section in sections for line in section(numbers)]
    return "\n".join([*lines, REMARKS.read_text().strip(), ""])


def _head(numbers: Numbers) -> Iterator[str]:
    results = numbers.results
    yield "# Speed"
    yield ""
    yield "Written by `make bench` from results.json; do not edit. Environment steps per second of whole training"
    yield "(sampling and SGD), start-up and first iteration excluded: median (lowest - highest) of three runs, each in"
    pairs = len(numbers.runs("ppo", "reef, minibatch 128, 2 workers")) or PAIRED_RUNS
    yield f"a process of its own, that take turns with the peers'; of {pairs} for Reef's workers against none, where a"
    yield "ratio near one is asked for. A ratio is that of medians over the rounds that both took part in. Everyone"
    yield "runs with their own defaults for threads, unless it says one thread."
    yield ""
    machines = _machines(results)
    for text, letter in machines.items():
        yield f"Machine {letter}: {text}."
    versions: dict[str, set[str]] = {}
    for part in results["parts"].values():
        for run in (run for case in part["cases"].values() for run in case["runs"]):
            for package, version in run.get("versions", {}).items():
                versions.setdefault(package, set()).add(version)
    yield (
        "Versions: "
        + ", ".join(f"{name} {' / '.join(sorted(found))}" for name, found in sorted(versions.items()))
        + "."
    )
    for part, found in results["parts"].items():
        if found["quick"]:
            yield f"\n**{part} is from a quick run, which shows that it works and not how fast.**"
    yield ""
    yield from table("part", "measured", "commit", "machine", "load before")
    for part, found in results["parts"].items():
        yield row(part, found["date"], found["commit"], machines[_machine(found)], found["load_before"])
    yield ""


def _machines(results: dict[str, Any]) -> dict[str, str]:
    """A letter for each machine that a part was measured on."""
    return dict(zip(dict.fromkeys(map(_machine, results["parts"].values())), ascii_uppercase, strict=False))


def _machine(part: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in part["machine"].items())


def _targets(numbers: Numbers) -> Iterator[str]:
    yield "## Targets"
    yield ""
    yield from table("what", "wanted", "measured", "")
    found = [*targets(numbers), *algorithm_targets(numbers), *scale_targets(numbers)]
    yield from (target.row() for target in found)
    missed = [target.what for target in found if target.met is False]
    yield ""
    yield "Not met: " + "; ".join(missed) + "." if missed else "Nothing measured was missed."
    yield ""


def _rates(numbers: Numbers, part: str, cases: Sequence[str], suffixes: Sequence[str]) -> Iterator[str]:
    """Yield a row for each case; a column has the rates of the cases with one suffix, over their common rounds."""
    columns = [numbers.rates(part, *(f"{case}{suffix}" for case in cases)) for suffix in suffixes]
    for case, *found in zip(cases, *columns, strict=True):
        yield row(NAMES[case], *map(_text, found))


def _ppo(numbers: Numbers) -> Iterator[str]:
    yield "## PPO"
    yield ""
    yield "CartPole-v1, MLP 64x64 tanh, 4,096 steps an iteration, 10 epochs, 8 environments (8 per worker), steps/s."
    yield ""
    columns = [f"minibatch {minibatch}{threads}" for minibatch in MINIBATCHES for threads in ("", ", one thread")]
    yield from table("", *columns)
    yield from _rates(numbers, "ppo", PPO_CASES, [f", {column}" for column in columns])
    workers = {
        "rllib, {}, 2 workers": "RLlib, 2 workers",
        "reef, {}, 2 workers": "Reef, 2 workers",
        "reef, {}, 2 workers ahead": "Reef, 2 workers that sample ahead",
    }
    for case, name in workers.items():
        yield row(name, *(_text(numbers.rate("ppo", case.format(column))) for column in columns))
    yield ""


def _lunar(numbers: Numbers) -> Iterator[str]:
    yield "## PPO on LunarLander-v3, Reef"
    yield ""
    yield from table("workers", *(f"minibatch {minibatch}" for minibatch in MINIBATCHES))
    for case, name in LUNAR.items():
        yield row(name, *(_beside_none(numbers, minibatch, case) for minibatch in MINIBATCHES))
    yield ""
    yield "The last line hands nothing over and waits for nobody: all that this machine's processors make together."
    yield ""


def _beside_none(numbers: Numbers, minibatch: int, case: str) -> str:
    rates = numbers.rates("lunar", *(f"reef, minibatch {minibatch}, {which}" for which in (case, "0 workers")))
    factor = ratio(*rates)
    return _text(rates[0]) if factor is None else f"{_text(rates[0])}: {factor:.2f}x"


def _dqn(numbers: Numbers) -> Iterator[str]:
    yield "## DQN"
    yield ""
    yield "CartPole-v1, plain DQN with uniform replay: one gradient step per four environment steps, batch 64,"
    yield "MLP 256x256, 8 environments, once learning has started."
    yield ""
    yield from table("", "steps/s")
    for case in ("rllib", "sb3", "reef"):
        yield row(NAMES[case], _text(numbers.rate("dqn", case)))
    for case in ("rllib", "reef"):
        yield row(f"{NAMES[case]}, 2 workers", _text(numbers.rate("dqn", f"{case}, 2 workers")))
    yield ""


def _sac(numbers: Numbers) -> Iterator[str]:
    yield "## SAC"
    yield ""
    yield "Pendulum-v1, one environment: one gradient step of critics, actor and temperature per environment step,"
    yield "batch 256, MLP 256x256, uniform replay, once learning has started, steps/s."
    yield ""
    yield from table("", "one thread", "threads as everyone has them")
    yield from _rates(numbers, "sac", (*SAC_PEERS, "reef"), (", one thread", ""))
    yield ""


def _recurrent(numbers: Numbers) -> Iterator[str]:
    yield "## PPO with an LSTM"
    yield ""
    yield "CartPole-v1, 64 units tanh and an LSTM of 64 that actor and critic share, 8 environments of 512 steps an"
    yield "iteration, 2 epochs, sequences of at most 20 steps, steps/s."
    yield ""
    columns = [f"minibatch {minibatch}{threads}" for minibatch in MINIBATCHES for threads in ("", ", one thread")]
    yield from table("", *columns)
    yield from _rates(numbers, "recurrent", ("rllib", "sb3", "reef"), [f", {column}" for column in columns])
    yield ""


def _agents(numbers: Numbers) -> Iterator[str]:
    yield "## PPO, two agents with a policy each"
    yield ""
    yield "Two CartPoles in one environment, all else as in the section on PPO; a minibatch has steps of one policy."
    yield "Steps of the environment per second, in each of which both agents act."
    yield ""
    columns = [f"minibatch {minibatch}, {workers} workers" for minibatch in MINIBATCHES for workers in WORKERS]
    yield from table("", *columns)
    yield from _rates(numbers, "agents", ("rllib", "reef"), [f", {column}" for column in columns])
    yield ""


def _sampling(numbers: Numbers) -> Iterator[str]:
    yield "## Sampling alone, 128 vectorised CartPoles"
    yield ""
    yield from table("", "steps/s")
    for case in ("bare loop", "reef"):
        yield row(NAMES[case], _text(numbers.rate("sampling", case)))
    yield ""


def _reward(numbers: Numbers) -> Iterator[str]:
    yield "## Wall time to mean reward 450 on CartPole-v1"
    yield ""
    yield "Mean of the last 100 training episodes, three seeds, start-up excluded. Reef: examples/cartpole-ppo.yaml;"
    yield "Stable-Baselines3: its tuned settings (rl-zoo)."
    yield ""
    yield from table("", "seconds", "steps", "seeds that reached it")
    for case in ("sb3", "reef"):
        seconds, steps = (numbers.field("reward", case, key) for key in ("seconds", "steps"))
        runs = numbers.runs("reward", case)
        reached = f"{sum(run['reached'] for run in runs)} of {len(runs)}"
        yield row(NAMES[case], _text(seconds, 1), _text(steps), reached)
    yield ""


def _memory(numbers: Numbers) -> Iterator[str]:
    yield "## Start and memory, in process"
    yield ""
    yield "Memory: largest sum of the resident memory of all processes, pages shared between them counted in each."
    yield ""
    yield from table("", "process start to end of first iteration, s", "peak memory, MB", "processes")
    for case in ("rllib", "sb3", "reef"):
        keys = (("first_iteration_s", 1), ("peak_mb", 0), ("peak_processes", 0))
        yield row(NAMES[case], *(_text(numbers.field("memory", case, key), digits) for key, digits in keys))
    yield ""


def _actors(numbers: Numbers) -> Iterator[str]:
    yield "## What every further worker costs (Reef, one run)"
    yield ""
    yield from table("workers", "steps/s", "start to first iteration, s", "peak memory, MB", "MB per further worker")
    before: tuple[int, float] | None = None
    for workers in ACTORS:
        case = f"{workers} workers"
        memory = numbers.field("actors", case, "peak_mb")
        each = f"{(memory.median - before[1]) / (workers - before[0]):,.0f}" if memory and before else "-"
        before = (workers, memory.median) if memory else None
        values = (numbers.rate("actors", case), numbers.field("actors", case, "first_iteration_s"), memory)
        yield row(str(workers), *(_plain(value) for value in values), each)
    yield ""


def _restart(numbers: Numbers) -> Iterator[str]:
    yield "## How long a lost worker is felt (Reef)"
    yield ""
    yield "From SIGKILL of Ray workers' processes until each has sampled again, while those that are left go on,"
    yield "and once more right after that. Two workers with 8 CartPoles each. A new process loads Ray and torch first."
    yield ""
    yield from table("killed", "first time, s", "second time, s")
    for killed in RESTARTED:
        found = [numbers.spread("restart", f"{killed} of 2", partial(_restart_s, which)) for which in range(2)]
        yield row(f"{killed} of 2", *(_text(spread, 1) for spread in found))
    yield ""


def _restart_s(which: int, run: dict[str, Any]) -> float:
    seconds: float = run["kills"][which]["seconds"]
    return seconds


def _store(numbers: Numbers) -> Iterator[str]:
    yield "## Through Ray's object store"
    yield ""
    yield "The size of what a worker sends and is sent, as Ray serialises it:"
    for run in numbers.runs("store", "reef"):
        each, observation = (run[key] / run["steps"] for key in ("sample_bytes", "observation_bytes"))
        yield f"A worker's sample takes {each:.1f} bytes per environment step ({observation:.0f} of them observations);"
        yield f"the weights take {run['weights_bytes']:,} bytes, for each worker (from 64 KiB on once for all)."
    yield ""


def _wide(numbers: Numbers) -> Iterator[str]:
    yield "## Wide: 4,096 vectorised CartPoles"
    yield ""
    yield "262,144 steps an iteration, one epoch, minibatch 32,768. PufferLib, with 4,096 environments in C and its own"
    yield "settings, was measured at 510,000 steps/s on this kind of machine."
    yield ""
    yield from table("", "steps/s")
    for case in ("bare loop", "reef"):
        yield row(NAMES[case], _text(numbers.rate("wide", case)))
    yield ""


def _limits(numbers: Numbers) -> Iterator[str]:
    yield "## Limits of the machine, and how far Reef is from them"
    yield ""
    runs = numbers.runs("limits", "limits")
    if runs:
        yield from table("", "")
        for name in runs[0]["rates"]:
            yield row(name, _text(numbers.limit(name)))
        yield ""
        stepping = numbers.limit("CartPole-v1, 8 as one, steps/s")
        for minibatch in MINIBATCHES:
            for sgd, what, threads in (
                ("bare SGD", "the bare eager SGD of the same batch", ""),
                ("products and tanh alone", "the products of that SGD and their tanh", ", one thread"),
            ):
                learning = numbers.limit(f"{sgd}, minibatch {minibatch}, steps/s")
                reef = numbers.rate("ppo", f"reef, minibatch {minibatch}{threads}")
                if stepping and learning and reef:
                    limit = 1 / (1 / stepping.median + 1 / learning.median)
                    yield f"- minibatch {minibatch}{threads}: raw stepping and {what}, and nothing"
                    yield f"  else, would make {limit:,.0f} steps/s; Reef makes {reef.median / limit:.2f} of that."
        for name, part, case in (
            ("SAC", "sac", "reef, one thread"),
            ("TD3", "td3", "td3, reef, one thread"),
            ("DDPG", "td3", "ddpg, reef, one thread"),
        ):
            products = numbers.limit(f"{name}'s products and relu alone, one thread, steps/s")
            if products and (alone := numbers.rate(part, case)):
                share = f"{alone.median / products.median:.2f}"
                yield f"- {name}, one thread: Reef makes {share} of what a step's products and relu alone would make."
        yield ""


def _profile(numbers: Numbers) -> Iterator[str]:
    yield "## Where Reef's time goes"
    yield ""
    yield "Share of wall time by the innermost function of Reef, with what it called in another library."
    yield ""
    for case in numbers.results["parts"].get("profile", {}).get("cases", {}):
        for run in numbers.runs("profile", case):
            yield from table(case, "share")
            yield from (row(f"`{name}`", f"{share:.0%}") for name, share in run["shares"].items() if share >= 0.01)
            yield ""


def _callbacks(numbers: Numbers) -> Iterator[str]:
    yield "## Callbacks"
    yield ""
    yield "CPU time of an iteration without callbacks, by that of one with a class that does nothing, in one process."
    yield "1 is no cost."
    yield ""
    yield from table("", *CALLBACKS)
    for name in ("PPO", "DQN"):
        yield row(name, *(_text(_cost(numbers, name, form), 3) for form in CALLBACKS))
    yield ""


def _cost(numbers: Numbers, name: str, form: str) -> Spread | None:
    return numbers.spread("callbacks", name, lambda run: run["ratios"][form])


def _gpu(numbers: Numbers) -> Iterator[str]:
    yield "## On a GPU"
    yield ""
    yield "Steps/s of whole training, one run each; small networks act on the CPU. PPO: CartPole-v1, 64 environments,"
    yield "16,384 steps an iteration, 10 epochs, minibatch 4,096. SAC: as above. IMPALA: 64 CartPoles, batch 4,096."
    yield ""
    yield from table("", *GPU_FORMS, "two learners that share the GPU")
    cases = {f"PPO, {hidden}x{hidden}": f"ppo, {hidden}" for hidden in GPU_HIDDENS}
    for name, case in {**cases, "SAC, 256x256": "sac, 256", "IMPALA, 256x256": "impala, 256"}.items():
        found = (numbers.rate("gpu", f"{case}, {form}") for form in (*GPU_FORMS, "two learners"))
        yield row(name, *map(_plain, found))
    yield ""


def _text(spread: Spread | None, digits: int = 0) -> str:
    return spread.text(digits) if spread else "-"


def _plain(spread: Spread | None) -> str:
    return f"{spread.median:,.0f}" if spread else "-"
