"""Which class archive a local JVM uses."""

import os
from pathlib import Path

import pytest

from changelane.spark.runtime import class_archive
from changelane.spark.runtime.class_archive import JAVA_OPTIONS, find, install, new_part, settings
from changelane.spark.runtime.jars import IVY_DIR_VARIABLE

HEADER = b"\xa8\xab\x0b\xf0 a header and the classes"


@pytest.fixture(autouse=True)
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(IVY_DIR_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return java


def create(content: bytes = HEADER) -> Path:
    part = new_part()
    part.write_bytes(content)
    archive = install(part)
    assert archive is not None
    assert not part.exists()
    return archive


def test_without_an_archive_the_options_of_the_user_stay() -> None:
    assert settings({}) == {}
    assert settings({JAVA_OPTIONS: "-Da=b"}) == {}


def test_an_archive_is_used_beside_the_options_of_the_user() -> None:
    archive = create()
    options = settings({JAVA_OPTIONS: "-Da=b -XX:+UseZGC"})[JAVA_OPTIONS]
    assert options.startswith(f'"-XX:SharedArchiveFile={archive}" ')
    assert options.endswith(" -Da=b -XX:+UseZGC")


@pytest.mark.parametrize(
    "option", ["-Xshare:off", "-XX:SharedArchiveFile=a.jsa", "-XX:AOTCache=a", "-XX:AOTMode=off"]
)
def test_an_archive_that_the_user_chose_is_used_instead(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    assert settings({JAVA_OPTIONS: option}) == {}
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", option)
    assert settings({}) == {}


def test_the_options_of_a_spark_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    create()
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert settings({}) == {}


def test_another_java_has_another_archive(java: Path) -> None:
    archive = create()
    assert find() == archive
    java.write_text("#!/bin/sh\n# an update\n")
    assert find() is None
    java.unlink()
    assert find() is None


@pytest.mark.parametrize("content", [b"", bytes(100)])
def test_an_archive_without_header_is_deleted(content: bytes) -> None:
    part = new_part()
    part.write_bytes(content)
    assert install(part) is None
    assert list(part.parent.iterdir()) == []
    assert install(part) is None  # the JVM wrote nothing


def test_a_truncated_archive_is_not_used() -> None:
    """A JVM would crash on it."""
    archive = create()
    archive.chmod(0o644)
    os.truncate(archive, len(HEADER) - 1)
    assert find() is None


def test_an_archive_that_others_can_write_is_not_used() -> None:
    archive = create()
    archive.parent.chmod(0o777)
    assert find() is None
    archive.parent.chmod(0o755)
    assert find() == archive
    archive.chmod(0o664)
    assert find() is None


def test_a_new_archive_deletes_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "MAX_ARCHIVES", 2)
    oldest, older = create(HEADER + b"1"), create(HEADER + b"12")
    os.utime(oldest, (1, 1))
    os.utime(older, (2, 2))
    newest = create(HEADER + b"123")
    assert set(newest.parent.iterdir()) == {older, newest}
