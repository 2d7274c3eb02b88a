"""PyTorch: compilation and threads."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from reef.config.declaration import setting
from reef.config.groups.group import NOT_GIVEN, Group

COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
TENSORFLOW = "is for TensorFlow, and Reef trains with PyTorch; "
THREADS = {"intra_op_parallelism_threads": 2, "inter_op_parallelism_threads": 2}
SESSION = {
    **THREADS,
    "gpu_options": {"allow_growth": True},
    "log_device_placement": False,
    "device_count": {"CPU": 1},
    "allow_soft_placement": True,
}
LOCAL_SESSION = {"intra_op_parallelism_threads": 8, "inter_op_parallelism_threads": 8}


class FrameworkSettings(Group):
    """How PyTorch runs in workers and learners."""

    group: ClassVar[str] = "framework"

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
    eager_tracing: bool = setting(
        False, "TensorFlow's tracing.", available=f"{TENSORFLOW}use torch_compile_learner and torch_compile_worker"
    )
    eager_max_retraces: int | None = setting(
        20, "TensorFlow's limit of tracing.", available=f"{TENSORFLOW}torch.compile keeps its own recompilation limit"
    )
    tf_session_args: dict[str, Any] = setting(
        SESSION, "TensorFlow's session arguments.", available=f"{TENSORFLOW}use torch_threads_per_worker"
    )
    local_tf_session_args: dict[str, Any] = setting(
        LOCAL_SESSION,
        "TensorFlow's session arguments of the driver.",
        available=f"{TENSORFLOW}use torch_threads_per_learner",
    )

    def framework(self, framework: Any = NOT_GIVEN, **settings: Any) -> Self:
        """Set how PyTorch runs."""
        return self.set_group("framework", {"framework": framework, **settings})
