"""Everything a person can cause is a `ReefError`: its text names the key, the value and the fix."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Iterable, Mapping
from types import MappingProxyType, TracebackType

EXIT_OK = 0
EXIT_FAILED = 1  # a fault that a retry from the newest checkpoint may heal
EXIT_WRONG_USE = 2  # the job is wrong: a retry would fail the same way
ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:/+(?:[^\s<>]*@)?[^\s'\"<>]+")  # a password may hold quotes
EXIT_INTERRUPTED = 130  # Ctrl-C, a checkpoint was written
EXIT_TERMINATED = 143  # SIGTERM, a checkpoint was written
LONGEST_NAME = 100  # characters for which a similar name is looked for, as that takes long


class ReefError(Exception):
    """An error whose text is for the person who runs the job."""

    exit_code = EXIT_FAILED
    is_final = False  # in a worker: it ends the run, whatever the fault-tolerance settings cover
    statistics: Mapping[str, float] = MappingProxyType({})  # what a learner had measured, as results name it

    def __str__(self) -> str:
        """The text as it may be shown: addresses in it may hold passwords."""
        return redacted(super().__str__())


class ConfigError(ReefError, ValueError):
    """A setting, a job document or an argument is wrong."""

    exit_code = EXIT_WRONG_USE


class EnvironmentError(ReefError):
    """An environment cannot be made, breaks the Gymnasium API, or raised."""

    exit_code = EXIT_WRONG_USE


class LostProcessError(EnvironmentError):
    """The process of an environment has ended: a retry may find it well."""

    exit_code = EXIT_FAILED


class CallbackError(ReefError):
    """A function of the user's, such as a hook of the setting `callbacks`, raised, or gave what cannot be used."""

    exit_code = EXIT_WRONG_USE
    is_final = True


class ResourceError(ReefError, RuntimeError):
    """The machine or cluster lacks what the job asks for (CPUs, GPUs, memory)."""

    exit_code = EXIT_WRONG_USE


class ClusterUnavailableError(ResourceError):
    """A Ray cluster does not answer, or refuses to be joined: a retry may heal it."""

    exit_code = EXIT_FAILED


class StorageError(ReefError):
    """A result or checkpoint folder cannot be used, as it turns out before the run."""

    exit_code = EXIT_WRONG_USE


class WriteError(StorageError):
    """The disk refuses what a run under way writes, for example because it is full: a retry may find it well again."""

    exit_code = EXIT_FAILED


class StoreUnavailableError(StorageError):
    """An object store does not answer, or not all is in it that should be: a retry may heal it."""

    exit_code = EXIT_FAILED


class CheckpointError(ReefError):
    """A checkpoint is missing, damaged or made for something else."""

    exit_code = EXIT_WRONG_USE


class DamagedCheckpointError(CheckpointError):
    """What a checkpoint holds cannot be read or restored: another one of the same run may be whole."""


class WorkerError(ReefError):
    """A worker failed and the fault-tolerance settings do not cover it."""

    in_start = False  # whether it failed to come up


class WorkerTimeoutError(WorkerError):
    """A worker gave no answer within its limit and was ended."""


class PolicyServerError(ReefError):
    """A policy server does not answer, refuses a request, or failed while it answered one."""


class ExternalEpisodeError(PolicyServerError, ValueError):
    """An episode of an application is not open, is lost, or is used in a wrong way."""


class EpisodeLostError(ExternalEpisodeError):
    """The server does not know an episode that was open: begin another one."""


class TrainingError(ReefError):
    """Training cannot go on, for example because the loss became NaN."""

    exit_code = EXIT_WRONG_USE


def without_secrets(uri: str) -> str:
    """A wrong uri as it may be shown: what is wrong with it may be a password."""
    if "?" in uri.rpartition("@")[0]:  # of a password, or a query: nobody knows where the secret ends
        return re.sub(r"^([\w+.-]+:/*)?.*", r"\1...", uri, flags=re.DOTALL)
    return re.sub(r"^([\w+.-]+:/*)?.*@", r"\1...@", uri, flags=re.DOTALL).split("?")[0]


def redacted(text: str) -> str:
    """A text for people in which addresses have no user, password, query (such as a signature) and fragment."""
    return ADDRESS.sub(_bare, text)


def _bare(found: re.Match[str]) -> str:
    address = found[0]
    if re.match(r"abfss?://[^@:/?#]+@[^@?#]*$", address):  # a container, which is no user
        return address
    end = re.search(r"[.,:;)\]]*$", address)
    bare = re.split("[?#]", without_secrets(address))[0]
    query = "?..." if "?" in address or "#" in address else ""
    return bare.rstrip(".,:;)]") + query + (end[0] if end else "") if query else bare


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the closest of `choices`, or "" when none is close.

    A field that is a mean is meant by its bare name too: 'episode_reward' is nearer to that than to the minimum.
    """
    if len(str(name)) > LONGEST_NAME:
        return ""
    exact = {choice: choice for choice in choices}
    spellings = {choice.removesuffix("_mean"): choice for choice in exact} | exact
    spellings = {spelling.lower(): choice for spelling, choice in spellings.items()}
    matches = difflib.get_close_matches(str(name).lower(), spellings, n=1, cutoff=0.6)
    return f" Did you mean {spellings[matches[0]]!r}?" if matches else ""


def sentence(error: object) -> str:
    """Return a text, such as that of an error, with the full stop that it may have already."""
    text = str(error).rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."


def own_traceback(error: Exception) -> str:
    """Return the traceback from the first line of a user's code on, with words before it; "" where there is none.

    An error of another process has it as `traceback_text`.
    """
    if (text := getattr(error, "traceback_text", None)) is not None:
        return str(text)
    frames = own_frames(error)
    lines = traceback.format_exception(type(error), error, frames) if frames else []
    return " Its own traceback:\n" + "".join(lines).rstrip() if lines else ""


def own_frames(error: Exception) -> TracebackType | None:
    """Return the frames that are not Reef's; None where Reef could not take what was returned."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").startswith("reef."):
        frames = frames.tb_next
    return frames
