"""Which settings work and which are refused: none is silently without effect."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import reef.config
from reef.config import AlgorithmConfig, ModelConfig
from reef.config.describe import settings_of
from reef.config.refusals import NOT_YET as NOT_AVAILABLE_YET
from reef.config.refusals import REFUSALS
from reef.errors import ConfigError

SOURCES = Path(reef.config.__file__).parents[1]


def words(text: str) -> list[str]:
    return text.split()


NOT_YET = words(
    """
    postprocess_inputs
"""
)
NEVER = words(
    """
    model.post_fcnet_activation model.custom_preprocessor model.no_final_linear
    eager_tracing eager_max_retraces tf_session_args local_tf_session_args enable_tf1_exec_eagerly
    in_evaluation policy_states_are_swappable policy_map_cache input_evaluation
    _enable_new_api_stack _tf_policy_handles_more_than_one_loss _disable_initialize_loss_from_dummy_batch
    _disable_execution_plan_api metrics_episode_collection_timeout_s fake_sampler offline_sampling
    learner_class env_runner_cls sample_collector enable_connectors episode_lookback_horizon
    _disable_preprocessor_api _disable_action_flattening compress_observations
"""
)
WORKING = words(
    """
    gamma lr grad_clip grad_clip_by train_batch_size train_batch_size_per_learner
    optimizer.type optimizer.betas optimizer.eps optimizer.weight_decay optimizer.amsgrad optimizer.alpha
    optimizer.centered optimizer.momentum optimizer.dampening optimizer.nesterov
    model.fcnet_hiddens model.fcnet_activation model.conv_filters
    model.conv_activation model.post_fcnet_hiddens model.free_log_std model.vf_share_layers model.custom_model
    model.custom_model_config model.custom_action_dist model.dim model.framestack model.grayscale model.zero_mean
    model.use_lstm model.max_seq_len model.lstm_cell_size model.lstm_use_prev_action model.lstm_use_prev_reward
    model.recurrent_cell model.use_attention model.attention_num_transformer_units model.attention_dim
    model.attention_num_heads model.attention_head_dim model.attention_memory_inference
    model.attention_memory_training model.attention_position_wise_mlp_dim model.attention_init_gru_gate_bias
    model.attention_use_n_prev_actions model.attention_use_n_prev_rewards
    env env_config observation_space action_space clip_rewards normalize_actions clip_actions disable_env_checking
    env_task_fn action_mask_key is_atari auto_wrap_old_gym_envs horizon soft_horizon no_done_at_end
    record_env render_env
    framework torch_threads_per_worker torch_threads_per_learner torch_compile_learner
    torch_compile_learner_what_to_compile torch_compile_learner_dynamo_backend torch_compile_learner_dynamo_mode
    torch_compile_worker torch_compile_worker_dynamo_backend torch_compile_worker_dynamo_mode
    num_rollout_workers num_envs_per_worker create_env_on_local_worker rollout_fragment_length batch_mode
    validate_workers_after_construction observation_filter preprocessor_pref sample_async
    max_requests_in_flight_per_sampler_worker remote_worker_envs remote_env_batch_wait_ms
    synchronize_filters use_worker_filter_stats
    update_worker_filter_stats sampler_perf_stats_ema_coef explore exploration_config
    evaluation_interval evaluation_duration evaluation_duration_unit evaluation_sample_timeout_s evaluation_config
    evaluation_num_workers always_attach_evaluation_results custom_evaluation_function
    evaluation_parallel_to_training enable_async_evaluation
    ignore_worker_failures recreate_failed_workers restart_failed_sub_environments
    num_consecutive_worker_failures_tolerance max_num_worker_restarts delay_between_worker_restarts_s
    worker_health_probe_timeout_s worker_restore_timeout_s sample_timeout_s
    num_gpus _fake_gpus num_cpus_per_worker num_gpus_per_worker num_cpus_for_local_worker custom_resources_per_worker
    num_learner_workers num_cpus_per_learner_worker num_gpus_per_learner_worker local_gpu_idx placement_strategy
    extra_python_environs_for_driver extra_python_environs_for_worker
    metrics_num_episodes_for_smoothing min_time_s_per_iteration
    min_train_timesteps_per_iteration min_sample_timesteps_per_iteration log_level log_sys_usage seed
    policies policy_mapping_fn policies_to_train policy_map_capacity count_steps_by replay_mode observation_fn
    algorithm_config_overrides_per_module callbacks keep_per_episode_custom_metrics
    env_to_module_connector module_to_env_connector learner_connector
    export_native_model_files checkpoint_trainable_policies_only logger_creator logger_config
    output output_compress_columns output_config output_max_file_size
    input_ input_config actions_in_input_normalized shuffle_buffer_size
    off_policy_estimation_methods ope_split_batch_by_episode
"""
)
UNREAD = {
    "framework",  # torch is the only one: nothing asks which
    "optimizer.centered",  # handed on by its name
}
READ_THOUGH_REFUSED = {"in_evaluation"}


def test_every_setting_is_listed_as_working_or_refused():
    assert {info.name for info in settings_of(AlgorithmConfig)} == set(WORKING)
    assert {name for name, refusal in REFUSALS.items() if refusal.advice == NOT_AVAILABLE_YET} == set(NOT_YET)
    assert {name for name, refusal in REFUSALS.items() if refusal.advice != NOT_AVAILABLE_YET} == set(NEVER)


def test_the_refused_are_no_settings():
    declared = {*AlgorithmConfig.by_key, *(f"model.{key}" for key in ModelConfig.by_key)}
    assert declared & REFUSALS.keys() == READ_THOUGH_REFUSED


@pytest.mark.parametrize("name", [*NOT_YET, *NEVER])
def test_the_refused_are_refused_by_name_with_the_reason(name):
    config = AlgorithmConfig().set_path(name, other_than(REFUSALS[name].default))
    with pytest.raises(ConfigError) as refusal:
        config.validate()
    assert f"{name}=" in str(refusal.value)
    assert REFUSALS[name].advice in str(refusal.value)
    assert f"Leave it at {REFUSALS[name].default!r}." in str(refusal.value)


@pytest.mark.parametrize("name", [*NOT_YET, *NEVER])
def test_the_refused_belong_to_a_group_and_can_be_read(name):
    config, key = AlgorithmConfig(), name.partition(".")[0]
    assert callable(getattr(config, REFUSALS[name].group))
    assert AlgorithmConfig.groups[key] == REFUSALS[name].group
    holder = config.model if key == "model" else config
    assert getattr(holder, name.rpartition(".")[2]) == REFUSALS[name].default


def test_at_their_defaults_all_are_fine():
    AlgorithmConfig().validate()
    config = AlgorithmConfig()
    for name, refusal in REFUSALS.items():
        config.set_path(name, json.loads(json.dumps(refusal.default)))
    assert config.validate() == AlgorithmConfig()


def test_the_refused_are_refused_in_evaluation_too():
    config = AlgorithmConfig().evaluation(
        evaluation_config={"compress_observations": True, "model": {"no_final_linear": True}}
    )
    with pytest.raises(ConfigError) as refusal:
        config.validate()
    assert "evaluation_config.compress_observations=True: batches are arrays that processes share" in str(refusal.value)
    assert "evaluation_config.model.no_final_linear=True: outputs come from a linear layer" in str(refusal.value)
    AlgorithmConfig().evaluation(evaluation_config={"compress_observations": False}).validate()


def test_every_working_setting_is_read_somewhere():
    files = [path for path in SOURCES.rglob("*.py") if path.parent.name != "groups"]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    attributes = {item.key: item.name for item in AlgorithmConfig.declared.values()}
    unread = {name for name in WORKING if attributes.get(name, name.rpartition(".")[2]) not in read}
    assert unread == UNREAD


def other_than(default: Any) -> Any:
    """A value that is not the default, of its type where there is one."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return default + 1
    if isinstance(default, dict):
        return {"other": 1.0}
    return ["other"] if isinstance(default, list) else "other"
