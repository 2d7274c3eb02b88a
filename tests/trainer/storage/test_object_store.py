"""An object store over its real protocol, from a server in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from s3_server import S3, SECRET

from reef.errors import ConfigError, StorageError, StoreUnavailableError
from reef.storage import object_store
from reef.storage.object_store import CHUNK, RemoteFolder


@pytest.fixture
def folder(s3: S3) -> RemoteFolder:
    return RemoteFolder("s3://bucket/team/") / "job"


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "RETRIES", 1)


def test_what_is_written_is_read_listed_and_deleted(folder: RemoteFolder, s3: S3, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(2 * CHUNK + 17))
    folder.put("a/large", large)
    folder.put("a/small", b"hello")
    folder.put("b", b"")
    assert str(folder) == "s3://bucket/team/job"
    assert s3.files() == ["team/job/a/large", "team/job/a/small", "team/job/b"]
    assert folder.files() == {"a/large": 2 * CHUNK + 17, "a/small": 5, "b": 0}
    assert folder.files("a") == {"a/large": 2 * CHUNK + 17, "a/small": 5}
    assert folder.folders() == ["a"]
    assert folder.read("a/small") == b"hello"
    folder.download("a/large", 2 * CHUNK + 17, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == large.read_bytes()
    folder.delete("a/large", "b", "never there")
    assert folder.files() == {"a/small": 5}
    with pytest.raises(FileNotFoundError):
        folder.read("b")


def test_a_folder_is_checked_by_using_it(folder: RemoteFolder, s3: S3) -> None:
    folder.check()
    assert s3.files() == []


@pytest.mark.parametrize(
    ("uri", "variables", "parts"),
    [
        ("s3://nobucket/f", {}, ["s3://nobucket/f", "NoSuchBucket", "--storage-path", "spec.checkpoint.storage.uri"]),
        ("s3://bucket/f", {"AWS_ACCESS_KEY_ID": "stranger"}, ["InvalidAccessKeyId", "AWS_ACCESS_KEY_ID", "secretRef"]),
        ("s3://bucket/f", {"AWS_SECRET_ACCESS_KEY": "wrong"}, ["SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"]),
        ("file:///proc/nothing", {}, ["file:///proc/nothing"]),
    ],
)
def test_what_the_store_refuses_is_the_jobs_fault(
    uri: str, variables: dict[str, str], parts: list[str], s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageError) as caught:
        RemoteFolder(uri).check()
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert all(part in message for part in parts), message
    assert "Debug source" not in message
    assert SECRET not in message


def test_no_credentials_at_all(s3: S3, monkeypatch: pytest.MonkeyPatch, few_tries: None) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")  # that of a machine in Amazon's cloud
    with pytest.raises(StorageError, match=r"no credentials were given.*AWS_ACCESS_KEY_ID") as caught:
        RemoteFolder("s3://bucket/f").check()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://a/b",
        "s3://",
        "s3:///b",
        "s3://key:hidden@bucket/f",
        "s3://bucket/f?X-Amz-Signature=hidden",
        "bucket/f",
        "az://container/folder",
    ],
)
def test_what_is_no_store(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises((ConfigError, StorageError)) as caught:
        RemoteFolder(uri)
    assert caught.value.exit_code == 2
    assert "hidden" not in str(caught.value)


def test_a_store_that_is_away_may_come_back(folder: RemoteFolder, s3: S3, few_tries: None) -> None:
    folder = RemoteFolder(folder.uri)
    s3.stop()
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError) as caught:
        folder.put("a", b"1")
    assert time.monotonic() - began < 10
    assert caught.value.exit_code == 1
    assert "s3://bucket/team/job: cannot write a" in str(caught.value)
    s3.start()
    folder.put("a", b"1")
    assert folder.read("a") == b"1"


def test_a_mounted_folder_is_a_store_too(tmp_path: Path) -> None:
    folder = RemoteFolder(f"file://{tmp_path}/mounted") / "job"
    folder.check()
    folder.put("a/b", b"1")
    assert (tmp_path / "mounted/job/a/b").read_bytes() == b"1"
    assert folder.files() == {"a/b": 1}
    assert folder.folders() == ["a"]


def test_it_can_be_tried_by_writing_alone(folder: RemoteFolder, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.check_writable() is folder
    assert s3.files() == []

    def refused(*names: str) -> None:
        raise StorageError("no right")

    monkeypatch.setattr(folder, "delete", refused)
    folder.check_writable()
    (left,) = s3.files()
    assert left.startswith("team/job/.reef-writable-")


def test_messages_name_the_setting_of_a_folder(s3: S3) -> None:
    with pytest.raises(ConfigError, match=r"^output='ftp://a/b': expected an object store"):
        RemoteFolder("ftp://a/b", "output")
    with pytest.raises(StorageError, match=r"^output='s3://nobucket/f/g': cannot list it: .* of each process that"):
        (RemoteFolder("s3://nobucket/f", "output") / "g").folders()
