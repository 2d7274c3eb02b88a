"""Settings that exclude each other: each is named with its value and what to do.

It tests reef.config.groups.group, reef.config.groups.operations, reef.config.groups.sampling and
reef.config.groups.training too.
"""

from typing import Any

import pytest

from reef import DQNConfig, PPOConfig, SACConfig
from reef.config import AlgorithmConfig
from reef.errors import ConfigError

CASES = {
    "ignore and recreate": (
        {"ignore_worker_failures": True, "recreate_failed_workers": True},
        ["ignore_worker_failures=True, recreate_failed_workers=True: they exclude each other"],
    ),
    "sampling ahead in process": ({"sample_async": True}, ["sample_async=True needs rollout workers"]),
    "automatic duration alone": (
        {"evaluation_duration": "auto"},
        ["evaluation_duration='auto': needs evaluation_parallel_to_training=True. Give a number of episodes"],
    ),
    "evaluation beside training in process": (
        {"evaluation_parallel_to_training": True, "evaluation_interval": 1},
        ["evaluation_parallel_to_training=True, evaluation_num_workers=0: this process trains meanwhile"],
    ),
    "asynchronous evaluation in process": (
        {"enable_async_evaluation": True, "evaluation_interval": 1},
        ["enable_async_evaluation=True, evaluation_num_workers=0: this process trains meanwhile"],
    ),
    "evaluation beside training, but never": (
        {"evaluation_parallel_to_training": True, "evaluation_num_workers": 1},
        ["evaluation_parallel_to_training=True, evaluation_interval=None: no iteration has an evaluation. Set"],
    ),
    "evaluation that is waited for and not": (
        {"evaluation_parallel_to_training": True, "enable_async_evaluation": True}
        | {"evaluation_num_workers": 1, "evaluation_interval": 1},
        ["evaluation_parallel_to_training=True, enable_async_evaluation=True: an iteration either waits"],
    ),
    "settings of the evaluation inside those of its workers": (
        {"evaluation_config": {"custom_evaluation_function": "builtins:max", "evaluation_interval": 3}},
        [
            "evaluation_config.custom_evaluation_function='builtins:max': has no effect in evaluation_config",
            "Set custom_evaluation_function beside it: .evaluation(custom_evaluation_function=...).",
            "evaluation_config.evaluation_interval=3: has no effect in evaluation_config",
        ],
    ),
    "a curriculum of evaluation": (
        {"evaluation_config": {"env_task_fn": "builtins:max"}},
        ["evaluation_config.env_task_fn='builtins:max': tasks are chosen after training, for its environments. Remove"],
    ),
    "another mask in evaluation": (
        {"evaluation_config": {"action_mask_key": "legal"}},
        ["evaluation_config.action_mask_key='legal': training has action_mask_key='action_mask', and what is"],
    ),
    "drawing in two ways": (
        {"record_env": True, "render_env": True},
        ["record_env=True, render_env=True: an environment draws in one way"],
    ),
    "drawing in two ways in evaluation": (
        {"record_env": True, "evaluation_config": {"render_env": True}},
        ["evaluation_config.record_env=True, render_env=True: an environment draws in one way"],
    ),
    "drawing in another way": (
        {"record_env": True, "env_config": {"render_mode": "rgb_array_list"}},
        ["env_config: render_mode='rgb_array_list': has no effect with record_env, which takes 'rgb_array'. Leave it"],
    ),
    "drawing in another way in evaluation": (
        {"env_config": {"render_mode": "rgb_array"}, "evaluation_config": {"render_env": True}},
        ["evaluation_config.env_config: render_mode='rgb_array': has no effect with render_env, which takes 'human'"],
    ),
    "misspelt in evaluation": (
        {"evaluation_config": {"explor": True}},
        ["evaluation_config.explor: AlgorithmConfig has no such setting. Did you mean 'explore'"],
    ),
    "wrong value in evaluation": (
        {"evaluation_config": {"lr": "fast", "model": {"no_final_linear": True}}},
        [
            "evaluation_config.lr='fast': expected number",
            "evaluation_config.model.no_final_linear=True: outputs come from a linear layer",
        ],
    ),
    "optimizer": ({"optimizer": {"type": "Adma"}}, ["optimizer.type='Adma': expected one of", "Did you mean 'Adam'?"]),
    "argument of another": (
        {"optimizer": {"type": "SGD", "eps": 0.1}},
        ["optimizer.eps=0.1: SGD takes momentum, dampening, nesterov, weight_decay. Leave it out, or choose another"],
    ),
    "argument of no Adam": ({"optimizer": {"alpha": 0.9}}, ["optimizer.alpha=0.9: Adam takes betas, amsgrad, eps"]),
    "no such argument": ({"optimizer": {"epsilon": 1e-5}}, ["optimizer.epsilon: optimizer has no such", "mean 'eps'?"]),
    "nesterov alone": (
        {"optimizer": {"type": "SGD", "nesterov": True}},
        ["nesterov=True: it needs a momentum above 0"],
    ),
    "momentum": ({"optimizer": {"type": "SGD", "momentum": 2}}, ["optimizer.momentum=2.0: must be at most 1"]),
    "one beta": ({"optimizer": {"betas": [0.9]}}, ["optimizer.betas=[0.9]: expected [number, number] or null."]),
    "betas as a number": ({"optimizer": {"betas": 0.9}}, ["optimizer.betas=0.9: expected [number, number] or null."]),
    "beta too large": ({"optimizer": {"betas": [0.9, 1]}}, ["optimizer.betas=[0.9, 1.0]: each must be below 1."]),
    "truth as eps": ({"optimizer": {"eps": True}}, ["optimizer.eps=True: expected number or null."]),
    "decay as a list": ({"optimizer": {"weight_decay": [1]}}, ["optimizer.weight_decay=[1]: expected number or null."]),
    "negative decay": ({"optimizer": {"weight_decay": -1}}, ["optimizer.weight_decay=-1.0: must be at least 0."]),
    "amsgrad as a number": ({"optimizer": {"amsgrad": 1}}, ["optimizer.amsgrad=1: expected true or false or null."]),
    "empty layer": ({"model": {"fcnet_hiddens": [8, 0]}}, ["model.fcnet_hiddens=[8, 0]: each must be at least 1."]),
    "filter without stride": (
        {"model": {"conv_filters": [[32, 8]]}},
        [
            "model.conv_filters=[[32, 8]]: expected list of [whole number, whole number or [whole number, whole "
            "number], whole number] or null."
        ],
    ),
    "kernel of three sizes": ({"model": {"conv_filters": [[32, [8, 8, 8], 1]]}}, ["[[32, [8, 8, 8], 1]]: expected"]),
    "kernel 0": ({"model": {"conv_filters": [[32, [8, 0], 1]]}}, ["[[32, [8, 0], 1]]: each must be at least 1."]),
    "filter of text": ({"model": {"conv_filters": [["a", 8, 1]]}}, ["model.conv_filters=[['a', 8, 1]]: expected list"]),
    "stride 0": ({"model": {"conv_filters": [[32, 8, 0]]}}, ["conv_filters=[[32, 8, 0]]: each must be at least 1."]),
    "negative resource": (
        {"custom_resources_per_worker": {"x": -1}},
        ["custom_resources_per_worker={'x': -1.0}: each must be at least 0."],
    ),
    "number as a key": (
        {"evaluation_config": {1: 2}},
        ["evaluation_config={1: 2}: expected mapping, and text in place of the key 1."],
    ),
    "value of an argument": (
        {"optimizer": {"betas": [0.9, 0.99], "eps": "x"}},
        ["optimizer.eps='x': expected number or null."],
    ),
    "divided GPUs": ({"num_gpus_per_worker": 1.5}, ["num_gpus_per_worker=1.5: above 1 only whole GPUs"]),
    "GPUs of one learner": (
        {"num_gpus": 4},
        ["num_gpus=4: one learner uses one GPU. Set num_learner_workers=4, num_gpus_per_learner_worker=1, num_gpus=0."],
    ),
    "GPUs of each learner": (
        {"num_learner_workers": 2, "num_gpus_per_learner_worker": 2},
        [
            "num_gpus_per_learner_worker=2: one learner uses one GPU. Set num_learner_workers=4, "
            "num_gpus_per_learner_worker=1."
        ],
    ),
    "two places for the learner": (
        {"num_gpus": 1, "num_learner_workers": 2},
        ["num_gpus=1, num_learner_workers=2", "Set num_gpus_per_learner_worker instead"],
    ),
    "GPUs of no learner": (
        {"num_gpus_per_learner_worker": 1},
        ["num_gpus_per_learner_worker=1, num_learner_workers=0: it is for learners in", "Set num_gpus for the one in"],
    ),
    "bounds of rewards": ({"clip_rewards": [1, -1]}, ["clip_rewards=[1.0, -1.0]: expected two bounds"]),
    "size of rewards": ({"clip_rewards": 0}, ["clip_rewards=0.0: must be larger than 0"]),
    "soft horizon alone": ({"soft_horizon": True}, ["soft_horizon=True: needs horizon"]),
    "schedule": ({"lr": [[5, 0.1]]}, ["lr: schedule [[5.0, 0.1]]: the first timestep must be 0, not 5"]),
    "first value of a schedule": ({"lr": [[0, 0], [9, 1]]}, ["lr=[[0.0, 0.0], [9.0, 1.0]]: must be larger than 0"]),
    "value in a schedule": ({"lr": [[0, 1], [9, -1]]}, ["lr=[[0.0, 1.0], [9.0, -1.0]]: must be at least 0"]),
    "search": ({"lr": {"grid_search": [1, 2]}}, ["lr={'grid_search': [1, 2]}: expected number or points"]),
    "TensorFlow": ({"framework": "tf2"}, ["framework='tf2': expected 'torch'"]),
    "TensorFlow's session": (
        {"tf_session_args": {"intra_op_parallelism_threads": 1}},
        ["is for TensorFlow, and Reef trains with PyTorch; use torch_threads_per_worker"],
    ),
    "not JSON": ({"env_config": {"thing": object()}}, ["object cannot be stored as JSON"]),
    "no environments": ({"num_envs_per_worker": 0}, ["num_envs_per_worker=0: must be at least 1"]),
    "empty evaluation": ({"evaluation_duration": 0}, ["evaluation_duration=0: must be at least 1"]),
    "other evaluation": ({"evaluation_duration": 1.5}, ["evaluation_duration=1.5: expected whole number or 'auto'"]),
    "clipping": ({"grad_clip_by": "norms"}, ["grad_clip_by='norms': expected one of 'value', 'norm'", "mean 'norm'?"]),
}


@pytest.mark.parametrize(("settings", "texts"), CASES.values(), ids=CASES.keys())
def test_is_refused_in_one_message(settings, texts):
    with pytest.raises(ConfigError) as refusal:
        AlgorithmConfig.from_dict(settings).validate()
    for text in texts:
        assert text in str(refusal.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"clip_rewards": True},
        {"clip_rewards": [-1, 1]},
        {"clip_rewards": 2},
        {"num_gpus": 0.2},
        {"num_learner_workers": 2, "num_gpus_per_learner_worker": 0.5},
        {"num_gpus_per_worker": 2},
        {"optimizer": {"eps": "1e-5", "betas": (0.9, 0.99)}},
        {"evaluation_interval": 0},
        {"evaluation_config": {"explore": True, "env_config": {"level": 3}}},
        {"record_env": True, "env_config": {"render_mode": "rgb_array"}},
        {"record_env": True, "evaluation_config": {"record_env": False, "render_env": True}},
        {"lr": [[0, "1e-4"], [1e6, 1e-5]]},
        {"lr": [[0, 1e-3], [1000, 0.0]]},
        {"ignore_worker_failures": True, "restart_failed_sub_environments": True},
    ],
    ids=repr,
)
def test_is_fine(settings):
    AlgorithmConfig.from_dict(settings).validate()


def test_problems_come_together_before_contradictions():
    config = AlgorithmConfig(ignore_worker_failures=True, recreate_failed_workers=True, optimizer=3, gamma=2)
    with pytest.raises(ConfigError) as refusal:
        config.validate()
    assert str(refusal.value).startswith(
        "2 problems in the settings of AlgorithmConfig:\n- gamma=2.0: must be at most 1"
    )


@pytest.mark.parametrize(
    ("preference", "model", "texts"),
    [
        ("deepmind", {"dim": 42, "framestack": False}, []),
        ("deepmind", {"grayscale": True}, ["model.grayscale=True: has no effect with preprocessor_pref='deepmind'"]),
        ("rllib", {"dim": 42, "grayscale": True, "zero_mean": False}, []),
        ("rllib", {"framestack": False}, ["with preprocessor_pref='rllib'. Leave it at True."]),
        (None, {"dim": 42, "zero_mean": False}, ["model.dim=42: has no effect", "model.zero_mean=False: has no eff"]),
        (None, {}, []),
        ("deepmind", {"dim": 35}, ["model.dim=35: must be at least 36 pixels"]),
        ("deepmindd", {}, ["expected one of None, 'deepmind', 'rllib'. Did you mean 'deepmind'?"]),
    ],
)
def test_frames_of_atari_games_are_prepared_in_one_way(preference, model, texts):
    config = AlgorithmConfig().rollouts(preprocessor_pref=preference).training(model=model)
    found = ""
    try:
        config.validate()
    except ConfigError as error:
        found = str(error)
    assert bool(found) is bool(texts)
    assert [text for text in texts if text not in found] == []


def test_evaluation_masks_actions_as_training_does():
    config = AlgorithmConfig().evaluation(evaluation_config={"action_mask_key": "legal"})
    with pytest.raises(ConfigError, match="evaluation_config.action_mask_key='legal': training has action_mask_key='a"):
        config.validate()


def test_evaluation_prepares_frames_as_training_does():
    config = AlgorithmConfig().evaluation(evaluation_config={"preprocessor_pref": None})
    with pytest.raises(
        ConfigError, match="evaluation_config.preprocessor_pref=None: training has preprocessor_pref='d"
    ):
        config.validate()


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (PPOConfig, "model", {"fcnet_hiddens": [3]}),
        (DQNConfig, "hiddens", [3]),
        (SACConfig, "q_model_config", {"fcnet_hiddens": [3]}),
        (SACConfig, "twin_q", False),
    ],
)
def test_a_policy_is_evaluated_with_the_network_that_was_trained(
    kind: type[AlgorithmConfig], key: str, value: Any
) -> None:
    config = kind().environment("CartPole-v1").evaluation(evaluation_config={key: value})
    with pytest.raises(ConfigError, match=f"Remove {key} from evaluation_config"):
        config.validate()
