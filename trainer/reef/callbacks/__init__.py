"""Your own code at certain moments of training; see docs/callbacks.md."""

from reef.callbacks.default import DefaultCallbacks as DefaultCallbacks
from reef.callbacks.hooks import MultiCallbacks as MultiCallbacks
from reef.callbacks.hooks import get_global_worker as get_global_worker
from reef.callbacks.hooks import make_multi_callbacks as make_multi_callbacks
from reef.callbacks.memory import MemoryTrackingCallbacks as MemoryTrackingCallbacks
from reef.callbacks.sample_batch import MultiAgentBatch as MultiAgentBatch
from reef.callbacks.sample_batch import SampleBatch as SampleBatch
