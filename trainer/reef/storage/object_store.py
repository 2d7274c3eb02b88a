"""A folder of an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure, or a mounted file system.

Credentials come from the environment variables of the store's own tools, in a pod from the Secret of the job. Every
request has a limit, is repeated a few times where that may help, and fails with a `StorageError` that names the place.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from reef.errors import ConfigError, StorageError, StoreUnavailableError, without_secrets

if TYPE_CHECKING:
    from obstore.store import ObjectStore

log = logging.getLogger(__name__)
REQUEST_S, CONNECT_S, RETRY_S, RETRIES = 60.0, 10.0, 30.0, 6  # of one request; repeated for RETRY_S at most
CHUNK, AT_ONCE = 8 << 20, 4  # bytes of one request, requests of an upload at once: 4.5 Mbit/s are enough for the limit
MARKER = ".reef-writable"
SETTINGS = {  # environment variables that a store's credentials and place are read from
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, if it is not Amazon's, AWS_ENDPOINT_URL",
    "gs": "GOOGLE_SERVICE_ACCOUNT_KEY",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "file": "",
}
SCHEMES = {"abfs": "az", "abfss": "az"}
# addresses that are asked as a last resort
NO_CREDENTIALS = ("169.254.169.254", "/latest/api/token", "metadata.google", "computeMetadata")


def is_uri(place: str | Path) -> bool:
    """Whether a place is in an object store and no folder of this machine."""
    return "://" in str(place)


class RemoteFolder:
    """A folder of an object store; names are relative to it, with "/" between their parts.

    Raises `ConfigError` for a uri of another form. Every method raises `StorageError` when the store refuses (a retry
    would fail the same way) and `StoreUnavailableError` when it does not answer.
    """

    def __init__(self, uri: str, setting: str = "") -> None:
        """`setting`: the one that names the folder, for messages; without it, it is where a run is kept."""
        from reef.api.fields import EXPLAINED, STORAGE_URI

        if not re.fullmatch(STORAGE_URI, uri):
            what = f"{setting}=" if setting else "storage "
            raise ConfigError(f"{what}{without_secrets(uri)!r}: expected {EXPLAINED[STORAGE_URI]}.")
        self.uri, self._setting = uri.rstrip("/"), setting
        self._what = f"{setting}={self.uri!r}" if setting else f"storage {self.uri}"
        self._store = self._open()

    def __truediv__(self, name: str) -> RemoteFolder:
        """A folder in this one."""
        return RemoteFolder(f"{self.uri}/{name}", self._setting)

    def __str__(self) -> str:
        return self.uri

    def put(self, name: str, content: bytes | Path) -> None:
        """Write an object as a whole: no reader sees half of it. OSError when the file `content` cannot be read."""
        source = content if isinstance(content, bytes) else content.open("rb")
        try:
            with self._errors("write", name):
                self._store.put(name, source, chunk_size=CHUNK, max_concurrency=AT_ONCE)
        finally:
            if not isinstance(source, bytes):
                source.close()

    def read(self, name: str) -> bytes:
        """The content of a small object; FileNotFoundError where there is none."""
        with self._errors("read", name, absent_is_an_answer=True):
            return bytes(self._store.get(name).bytes())

    def download(self, name: str, size: int, file: Path) -> None:
        """Copy the first `size` bytes of an object into a file, by requests of bounded length."""
        with file.open("wb") as stream:
            for start in range(0, size, CHUNK):
                with self._errors("read", name):
                    part = self._store.get_range(name, start=start, end=min(start + CHUNK, size))
                stream.write(part)

    def files(self, folder: str = "") -> dict[str, int]:
        """Names and sizes, in bytes, of everything in `folder` and below."""
        with self._errors("list", folder):
            found = [entry for part in self._store.list(folder or None) for entry in part]
        return {entry["path"]: entry["size"] for entry in found}

    def own_files(self) -> dict[str, int]:
        """Names and sizes, in bytes, of what lies in this folder and in none below."""
        with self._errors("list", ""):
            return {entry["path"]: entry["size"] for entry in self._store.list_with_delimiter()["objects"]}

    def folders(self) -> list[str]:
        """Names of the folders in this one."""
        with self._errors("list", ""):
            return sorted(self._store.list_with_delimiter()["common_prefixes"])

    def delete(self, *names: str) -> None:
        """Remove objects; those that are not there do not matter."""
        for name in names:
            with self._errors("delete", name, absent_is_an_answer=True):
                try:
                    self._store.delete(name)
                except FileNotFoundError as error:
                    if refused_as_a_whole(error):
                        raise

    def check(self) -> Self:
        """This folder, once it has been listed, written, read and cleaned up, before anything relies on it."""
        self.folders()
        self.put(MARKER, b"Reef can write here.\n")
        self.read(MARKER)
        try:
            self.delete(MARKER)
        except StorageError as error:
            log.warning("older checkpoints cannot be removed: %s", error)
        return self

    def check_writable(self) -> Self:
        """This folder, once a small object was written; it is removed again, if the rights allow that."""
        marker = f"{MARKER}-{uuid.uuid4().hex[:8]}"  # others may check the folder at the same time
        self.put(marker, b"Reef can write here.\n")
        with suppress(StorageError):
            self.delete(marker)
        return self

    def _open(self) -> ObjectStore:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import LocalStore, from_url
        except ImportError as error:
            raise ConfigError(f"{self._what} needs obstore: pip install 'reef[trainer]'.") from error

        limits: dict[str, Any] = {
            "client_options": {
                "timeout": timedelta(seconds=REQUEST_S),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "allow_http": True,  # only an endpoint that a person wrote so is without TLS
            },
            "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        }
        try:
            if self.uri.startswith("file://"):
                return LocalStore(self.uri.removeprefix("file://"), mkdir=True)
            return from_url(self.uri, **limits)
        except (OSError, ValueError, BaseError) as error:
            raise StorageError(f"{self._what}: {reason_of(error)}.{self._fix()}") from error

    @contextmanager
    def _errors(self, doing: str, name: str, *, absent_is_an_answer: bool = False) -> Iterator[None]:
        """Turn what the store says into errors for people."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            absent = isinstance(error, FileNotFoundError)
            if absent and absent_is_an_answer and not refused_as_a_whole(error):
                raise
            what = f"{self._what}: cannot {doing} {name or 'it'}: {reason_of(error)}."
            if absent or is_refusal(error):
                raise StorageError(what + self._fix()) from error
            raise StoreUnavailableError(what) from error

    def _fix(self) -> str:
        scheme = self.uri.partition("://")[0]
        variables = SETTINGS[SCHEMES.get(scheme, scheme)]
        if self._setting:
            needed = f" and the environment variables {variables} of each process that uses it"
            return f" Check the address{needed if variables else ''}."
        if not variables:
            return " Give another --storage-path or spec.checkpoint.storage.uri."
        return (
            " Check the uri (--storage-path, spec.checkpoint.storage.uri or spec.restoreFrom) and the environment "
            f"variables {variables}; in a pod they are the keys of the Secret in spec.checkpoint.storage.secretRef."
        )


def is_refusal(error: Exception) -> bool:
    """Whether asking again would be answered the same way: no right, no credentials, a request that is wrong."""
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return True
    text = str(error)
    refused = re.search(r"status code: (4\d\d)", text)
    if refused and refused[1] not in ("408", "429"):
        return True
    return "redirect without LOCATION" in text or any(part in text for part in NO_CREDENTIALS)


def refused_as_a_whole(error: Exception) -> bool:
    """Whether a "not found" is about the bucket or container and not about one object in it."""
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def reason_of(error: Exception) -> str:
    """What the store said, in one line, without the library's debugging and without what follows a "?" in addresses."""
    text = str(error).split("\n\nDebug source")[0]
    if any(part in text for part in NO_CREDENTIALS):
        return "no credentials were given, and this machine has none of its own"
    answer = re.search(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", text, re.DOTALL)
    if answer:
        return f"{answer[1]}: {answer[2].strip().rstrip('.')}"
    return re.sub(r"\?\S+", "?...", " ".join(text.split())).rstrip(".")
