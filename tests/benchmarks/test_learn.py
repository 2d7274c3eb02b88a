"""`make learn`: its documents, how it evaluates, and what it trains again."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.learn import __main__ as learn
from benchmarks.learn import training
from benchmarks.learn.curves import write_curves
from benchmarks.learn.lines import FOLDER, SEEDS, TUNED, Line, documents, what_runs
from benchmarks.learn.report import is_met, report
from benchmarks.learn.rule import Threshold
from benchmarks.learn.training import Kept, evaluate, evaluation_settings, lowest, trained

from reef.algorithms.ppo import PPOConfig
from reef.algorithms.sac import SACConfig
from reef.api import load_job
from reef.job.settings import config_of
from reef.rollout.worker import RolloutWorker
from reef.types import DEFAULT_POLICY

DOCUMENTS = documents()
PENDULUM = {"env": "Pendulum-v1", "model": {"fcnet_hiddens": [8]}}


def test_documents_that_say_that_they_were_not_measured_are_not_in_the_table():
    left_out = {path.name for path in TUNED.glob("*.yaml")} - {path.name for path in DOCUMENTS}
    assert left_out == {"pong-impala-gpu.yaml", "pong-ppo.yaml"}


def document(folder: Path, reaches: str, comment: str = "") -> Path:
    text = (TUNED / "cartpole-ppo.yaml").read_text().replace("475 by 100000", reaches)
    path = folder / "quick.yaml"
    path.write_text(text + comment)
    return path


def test_several_thresholds_of_one_document_in_the_order_of_their_steps(tmp_path: Path):
    line = Line.of(document(tmp_path, "-165 by 12000, -200 by 7000"))
    assert line.thresholds == [Threshold(7000, -200.0), Threshold(12_000, -165.0)]
    assert (line.steps, line.interval) == (12_000, 240)


def test_a_long_run_that_was_stopped_goes_on_from_its_newest_checkpoint(tmp_path: Path):
    config = PPOConfig().environment("CartPole-v1").debugging(seed=1)
    config.training(model={"fcnet_hiddens": [4]}, train_batch_size=32, sgd_minibatch_size=32, num_sgd_iter=1)
    greedy = evaluation_settings(config)
    line, whole = SimpleNamespace(steps=96), {"evaluations": []}
    with config.build() as algorithm:
        trained(algorithm, line, greedy, whole)
        at_once = algorithm.get_weights()
    kept, record = Kept(tmp_path / "run"), {"random": 20.0, "evaluations": []}
    with config.build() as algorithm:
        assert kept.take_up(algorithm) is None
        trained(algorithm, SimpleNamespace(steps=32), greedy, record)
        kept.write(algorithm, record)
        trained(algorithm, SimpleNamespace(steps=64), greedy, record)
        kept.write(algorithm, record)
        assert len(list((tmp_path / "run").glob("checkpoint_*"))) == 1
    with config.build() as algorithm:
        record = kept.take_up(algorithm)
        trained(algorithm, line, greedy, record, kept)
        np.testing.assert_equal(algorithm.get_weights(), at_once)
    assert record["random"] == 20.0
    assert [(steps, reward) for steps, _, reward in record["evaluations"]] == [
        (steps, reward) for steps, _, reward in whole["evaluations"]
    ]
    seconds = [seconds for _, seconds, _ in record["evaluations"]]
    assert seconds == sorted(seconds), "they go on too"
    kept.remove()
    assert not (tmp_path / "run").exists()


def test_what_another_version_of_a_line_left_unfinished_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training, "UNFINISHED", tmp_path)
    line = SimpleNamespace(document=Path("hopper-ppo.yaml"), fingerprint="new")
    for name in ("hopper-ppo-1-old", "hopper-ppo-1-new", "hopper-ppo-2-old", "hopper-ppo-lstm-1-old"):
        (tmp_path / name).mkdir()
    Kept.of(line, 1)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "hopper-ppo-1-new",
        "hopper-ppo-2-old",
        "hopper-ppo-lstm-1-old",
    ]


@pytest.mark.parametrize("record", [{"error": "no space left"}, {"evaluations": [[100_000, 1.0, 20.0]]}])
def test_a_training_that_failed_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, object]
):
    line = Line.of(document(tmp_path, "475 by 100000"))
    half_done = tmp_path / f"quick-1-{line.fingerprint}"
    half_done.mkdir()
    monkeypatch.setattr(training, "UNFINISHED", tmp_path)
    monkeypatch.setattr(learn, "trained", lambda pairs, jobs: [(line, 1, {"random": 20.0, "untrained": 20.0} | record)])
    monkeypatch.setattr(learn, "report", lambda results, lines: "")
    monkeypatch.setattr(learn, "write_curves", lambda folder, results, lines: None)
    monkeypatch.setattr("sys.argv", ["learn", "--folder", str(tmp_path), "--only", "quick"])
    assert learn.main() == 1
    assert half_done.exists() is ("error" in record)


def test_the_fingerprint_is_that_of_the_document_without_its_comments(tmp_path: Path):
    before = Line.of(document(tmp_path, "475 by 100000")).fingerprint
    assert Line.of(document(tmp_path, "475 by 100000", "# more")).fingerprint == before
    assert Line.of(document(tmp_path, "476 by 100000")).fingerprint != before


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_trains_for_the_steps_that_it_promises(path: Path):
    assert load_job(path).spec.stop == {"timesteps_total": Line.of(path).steps}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_random_policy_falls_short(path: Path):
    line, config = Line.of(path), config_of(load_job(path))
    settings = evaluation_settings(config, explore=True, exploration_config={"type": "Random"})
    worker = RolloutWorker(settings.evaluation_settings().rollouts(num_envs_per_worker=4).freeze())
    rewards = [episode.policy_rewards.values() for episode in worker.sample_episodes(12).episodes]
    worker.stop()
    assert np.mean(list(map(max, rewards))) < min(each.reward for each in line.thresholds) - 50


def test_every_policy_has_to_learn():
    assert lowest({"policy_reward_mean": {"left": 500.0, "right": 20.0}}) == 20.0


def test_a_line_that_is_met_without_its_memory_is_not_met(tmp_path: Path):
    line = Line.of(FOLDER / "cartpole-ppo-lstm.yaml")
    record = {"random": 20.0, "untrained": 20.0, "evaluations": [[line.steps, 1.0, 500.0]] * 3}
    assert is_met(line, record | {"without": 100.0})
    assert not is_met(line, record | {"without": 450.0})


def test_evaluations_of_all_algorithms_and_seeds_begin_with_the_same_observations():
    ppo = PPOConfig.from_dict(PENDULUM).debugging(seed=1)
    sac = SACConfig.from_dict(PENDULUM).debugging(seed=2)
    first = []
    for config in (ppo, sac):
        worker = RolloutWorker(evaluation_settings(config).evaluation_settings().freeze())
        first.append(worker.env.reset()[DEFAULT_POLICY])
        worker.stop()
    assert len(np.unique(first[0], axis=0)) == 100
    np.testing.assert_array_equal(*first)


def test_rewards_that_are_scaled_for_training_are_evaluated_as_they_are():
    config = config_of(load_job(FOLDER / "pendulum-ppo-lstm.yaml"))
    assert config.env_config["reward_scale"] < 1.0
    assert evaluation_settings(config).evaluation_settings().env_config["reward_scale"] == 1.0


def test_the_same_policy_is_evaluated_to_the_same_reward():
    config = PPOConfig.from_dict(PENDULUM).rollouts(observation_filter="MeanStdFilter")
    settings = evaluation_settings(config)
    with config.training(train_batch_size=64, sgd_minibatch_size=64).build() as algorithm:
        before = evaluate(algorithm, settings)
        assert evaluate(algorithm, settings) == before
        algorithm.train()
        assert evaluate(algorithm, settings) != before


def test_only_seeds_that_were_not_trained_as_the_document_is_now_are_due():
    line = Line.of(DOCUMENTS[0])
    known = {"1": {"fingerprint": line.fingerprint}, "2": {"fingerprint": "another"}, "3": {"error": "it broke"}}
    results = {line.document.name: known}
    assert learn.due([line], results, Namespace(all=False, quick=False)) == [(line, 2), (line, 3)]
    assert learn.due([line], results, Namespace(all=True, quick=False)) == [(line, seed) for seed in SEEDS]


def test_the_table_says_how_many_seeds_met_the_line():
    line = Line.of(TUNED / "cartpole-ppo.yaml")
    curve = [[line.interval * number, 0.1 * number, 500.0] for number in range(1, 51)]
    good = {"evaluations": curve, "random": 22.0, "untrained": 9.0, "training": 480.0, "sampled": 490.0}
    good |= {"date": "2026-01-01", "commit": "abc", "machine": {"processor": "one"}}
    bad = good | {"evaluations": [*curve[:-1], [100_000, 5.0, 240.0]]}
    name = line.document.name
    assert "| met |" in report({name: {"1": good, "2": good, "3": good}}, [line])
    assert "| **not met** (2 of 3) |" in report({name: {"1": good, "2": good, "3": bad}}, [line])
    assert "| **not met** (2 of 3) |" in report({name: {"1": good, "2": good}}, [line])
    assert "| not run |" in report({}, [line])


def test_the_table_compares_with_bc_and_the_recorded_episodes():
    line = Line.of(FOLDER / "cartpole-marwil.yaml")
    curve = [[line.interval * number, 0.1 * number, 460.0] for number in range(1, 51)]
    run = {"evaluations": curve, "random": 22.0, "untrained": 9.0, "training": None, "sampled": 450.0}
    run |= {"date": "2026-01-01", "commit": "abc", "machine": {"processor": "one"}, "bc": 306.0, "recorded": 59.0}
    name, others = line.document.name, [{"bc": 307.0}, {"recorded": 461.0}]
    text = report({name: {"1": run, "2": run, "3": run}}, [line])
    assert ", 1.5 x BC | met |" in text
    assert "| 306 / 306 / 306 | 59 / 59 / 59 | 2026-01-01 (abc) |" in text
    for other in others:
        assert "| **not met** (2 of 3) |" in report({name: {"1": run, "2": run | other, "3": run}}, [line])


def test_texts_for_readers_are_no_part_of_what_runs():
    def code(comment: str = "", doc: str = "Doc.", text: str = "Text.", default: str = "0.5") -> str:
        return f'class A:\n    """{doc}"""\n\n    tau: float = setting({default}, "{text}", above=0.0)  # {comment}\n'

    same = what_runs(code())
    assert {what_runs(code("why")), what_runs(code(doc="Other.")), what_runs(code(text="Other."))} == {same}
    assert what_runs(code(default="0.6")) != same


def test_the_comparison_with_bc_is_part_of_the_fingerprint(tmp_path: Path):
    text = (FOLDER / "cartpole-marwil.yaml").read_text()
    path = tmp_path / "marwil.yaml"
    path.write_text(text)
    before = Line.of(path)
    path.write_text(text.replace('times-bc: "1.5"', 'times-bc: "2"'))
    assert (Line.of(path).times_bc, before.times_bc) == (2.0, 1.5)
    assert Line.of(path).fingerprint != before.fingerprint


def test_the_table_is_that_of_the_numbers_beside_it():
    results = json.loads((FOLDER / "results.json").read_text())
    expected = report(results, [Line.of(path) for path in DOCUMENTS])
    assert (FOLDER / "RESULTS.md").read_text() == expected, "run `python -m benchmarks.learn --report`"


@pytest.mark.parametrize(("reaches", "code"), [("475 by 100000", 0), ("475 by 1024", 1)])
def test_the_quick_part_trains_and_says_whether_it_learnt(tmp_path: Path, reaches: str, code: int):
    document(tmp_path, reaches)
    command = [sys.executable, "-m", "benchmarks.learn", "--quick", "--folder", str(tmp_path)]
    done = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert f"quick.yaml, seed 1: {'met' if code == 0 else 'not met'}, " in done.stdout


def test_every_line_with_results_has_its_curve_in_a_document(tmp_path: Path):
    results = json.loads((FOLDER / "results.json").read_text())
    lines = [Line.of(path) for path in DOCUMENTS]
    write_curves(tmp_path, {"cartpole-ppo.yaml": results["cartpole-ppo.yaml"], "cartpole-pg.yaml": {}}, lines)
    assert [path.name for path in tmp_path.iterdir()] == ["cartpole-ppo.svg"]
    assert "seed 3" in (tmp_path / "cartpole-ppo.svg").read_text()
    drawn = {path.name for path in (FOLDER / "curves").iterdir()}
    assert drawn == {f"{Path(name).stem}.svg" for name in results}
    pages = "".join(page.read_text() for page in (FOLDER.parents[1] / "docs").rglob("*.md"))
    assert not [name for name in drawn if f"/curves/{name})" not in pages]
