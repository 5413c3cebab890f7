# SPDX-License-Identifier: Apache-2.0
"""The storages of a capture log: what each must do, and what their errors say."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import BUCKET, s3_server

from changelane.capture.manifest import CapturedRecord
from changelane.capture.object_store import ObjectStoreFolder
from changelane.capture.segment_store import CaptureFencedError, CaptureLog, SegmentWriter
from changelane.capture.storage import Folder, LocalFolder, folder_of
from changelane.errors import ConfigError


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """The address of a bucket."""
    with s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}"


@pytest.fixture(params=["local", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param == "local":
        return folder_of(str(tmp_path / "log"))
    return folder_of(f"{request.getfixturevalue('store')}/{tmp_path.name}/a log")


def test_a_file_is_created_once_and_replaced(folder: Folder) -> None:
    folder.create("epochs/1.json", b"1")
    with pytest.raises(FileExistsError):
        folder.create("epochs/1.json", b"2")
    assert folder.read("epochs/1.json") == b"1"
    folder.replace("epochs/1.json", b"3")
    folder.replace("consumers/a~b c.json", b"4")
    assert pickle.loads(pickle.dumps(folder)).read("epochs/1.json") == b"3"
    assert folder.names("epochs") == ["1.json"]
    assert folder.names("consumers") == ["a~b c.json"]
    assert folder.names("nothing") == []
    folder.delete("epochs/1.json")
    folder.delete("epochs/1.json")
    with pytest.raises(FileNotFoundError):
        folder.read("epochs/1.json")


def test_a_local_file_is_moved_there(folder: Folder, tmp_path: Path) -> None:
    content = bytes(range(256)) * 60_000  # more than one part of an upload
    source = tmp_path / "spooled"
    source.write_bytes(content)
    folder.put(source, "segments/1")
    assert not source.exists()
    assert folder.read("segments/1") == content
    with pytest.raises(FileNotFoundError):
        folder.put(source, "segments/2")


def test_a_log_has_what_its_newest_writer_published(folder: Folder, tmp_path: Path) -> None:
    log = CaptureLog(folder)
    former = SegmentWriter(folder, tmp_path / "one", segment_bytes=10)
    for number in range(3):
        former.append(CapturedRecord("t", None, str(number)))
        former.publish({"lsn": number})
        newest = log.newest()
        assert newest is not None
        assert newest.sequence == number + 1
    former.append(CapturedRecord("t", None, "never"))
    assert len(folder.names("segments")) == 4
    writer = SegmentWriter(folder, tmp_path / "two")
    with pytest.raises(CaptureFencedError):
        former.publish({})
    writer.append(CapturedRecord("t", None, "3"))
    assert writer.publish({"lsn": 3}).first_offset == 3
    assert len(folder.names("segments")) == 4, "the one that was never published is gone"
    log.set_consumed("shop", 2)
    assert log.delete_expired(retention_s=-1) == 2
    assert log.sequences() == [3, 4]
    assert log.newest() == writer.newest
    former.close()
    writer.close()


def test_an_outage_is_an_error_of_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
    monkeypatch.setattr("changelane.capture.object_store.RETRY_TIMEOUT_S", 0)
    with pytest.raises(OSError, match="error sending request") as raised:
        ObjectStoreFolder("s3://captures/log").read("log.json")
    assert "a-secret" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.filename == "s3://captures/log/log.json"


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("s3://key:secret@captures/log", "put them into the environment"),
        ("abfss://c@account.dfs.core.windows.net/log?sig=secret", "put them into the environment"),
        ("ftp://host/log", "cannot be at ftp:// addresses"),
        ("s3://", "is no address of an object store"),
    ],
)
def test_an_address_that_is_not_supported_is_an_error(address: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error) as raised:
        folder_of(address)
    assert "secret" not in str(raised.value)


def test_an_address_without_scheme_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(folder_of(f"file://{tmp_path}"), LocalFolder)
    assert isinstance(folder_of(str(tmp_path)), LocalFolder)
