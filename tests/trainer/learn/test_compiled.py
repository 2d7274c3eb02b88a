"""The learner compiled by inductor, as torch_compile_learner does by default, beside the eager one.

It tests reef.nn.fast.compiled too.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch

from reef.algorithms.ppo import PPOConfig
from reef.types import DEFAULT_POLICY

COMPILER = os.environ.get("CXX") or "g++"  # where inductor looks
HEADERS = Path(sysconfig.get_path("include"))
MISSING = [
    text
    for text, found in (
        (f"C++ compiler {COMPILER}", shutil.which(COMPILER)),
        (f"{HEADERS}/Python.h", (HEADERS / "Python.h").exists()),
        ("PyTorch in a path without spaces", " " not in torch.__file__),
    )
    if not found
]


def config() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .rollouts(num_envs_per_worker=4)
        .training(train_batch_size=128, sgd_minibatch_size=32, num_sgd_iter=2, lr=1e-2, model={"fcnet_hiddens": [8]})
        .debugging(seed=0)
    )


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"inductor compiles C++, but there is no {' and no '.join(MISSING)}")
@pytest.mark.parametrize("what", ["forward_train", "complete_update"])
def test_inductor_learns_the_same(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # or an earlier run's graphs would be taken
    compiled = config().framework(torch_compile_learner=True, torch_compile_learner_what_to_compile=what)
    assert compiled.torch_compile_learner_dynamo_backend == "inductor"
    with config().build() as one, compiled.build() as two:
        before = one.learners.weights()[DEFAULT_POLICY].copy()
        eager, fast = one.train(), two.train()
        weights = [algorithm.learners.weights()[DEFAULT_POLICY] for algorithm in (one, two)]
    assert not np.allclose(before, weights[0], atol=1e-3)
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-3, atol=1e-5)
    stats = [result["info"]["learner"][DEFAULT_POLICY]["learner_stats"] for result in (eager, fast)]
    assert stats[1] == pytest.approx(stats[0], rel=1e-3, abs=1e-5)
    assert list(tmp_path.rglob("*.so")), "inductor compiled nothing"
