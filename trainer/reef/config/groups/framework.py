"""PyTorch: compilation and threads."""

from __future__ import annotations

from reef.config.declaration import setting
from reef.config.groups.group import GroupSetter
from reef.config.settings import Settings

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class FrameworkSettings(Settings):
    """How PyTorch runs in workers and learners."""

    framework = GroupSetter("framework")

    framework_str: str = setting(
        "torch", "The tensor library. Only 'torch' exists here.", choices=("torch",), key="framework"
    )
    torch_threads_per_worker: int = setting(1, "CPU threads of torch in each rollout worker process.", minimum=1)
    torch_threads_per_learner: int | None = setting(
        None,
        "CPU threads of torch in each learner process; null: as many as have work and a CPU of their own.",
        minimum=1,
    )
    torch_compile_learner: bool = setting(
        False, "Compile the learner with torch.compile: slower start, faster updates."
    )
    torch_compile_learner_what_to_compile: str = setting(
        "forward_train", "What of the learner is compiled.", choices=("forward_train", "complete_update")
    )
    torch_compile_learner_dynamo_backend: str = setting(
        "inductor",
        "Backend of torch.compile in the learner. Inductor needs a C++ compiler, and PyTorch in a path without spaces.",
    )
    torch_compile_learner_dynamo_mode: str | None = setting(
        None, "Mode of torch.compile in the learner; null is torch's default.", choices=(None, *COMPILE_MODES)
    )
    torch_compile_worker: bool = setting(False, "Compile the policy of rollout workers with torch.compile.")
    torch_compile_worker_dynamo_backend: str = setting(
        "inductor",
        "Backend of torch.compile in workers. Inductor needs a C++ compiler, and PyTorch in a path without spaces.",
    )
    torch_compile_worker_dynamo_mode: str | None = setting(
        None, "Mode of torch.compile in workers; null is torch's default.", choices=(None, *COMPILE_MODES)
    )
