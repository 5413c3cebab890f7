# SPDX-License-Identifier: Apache-2.0
"""Folders as a source lists them: hidden names, links, and what is no file."""

import os
from pathlib import Path

import pytest

from changelane.errors import ConfigError
from changelane.spark.sources.file_listing import (
    Root,
    _hadoop_files,
    address,
    is_hidden,
    path_of,
    walk,
)


def accepts(name: str) -> bool:
    return name.endswith(".jsonl")


def names(root: Path, *, follow_links: bool = False) -> list[str]:
    found = walk(str(root), accepts, follow_links=follow_links)
    return sorted(str(Path(one.path).relative_to(root)) for one in found.files)


def test_files_of_all_folders_are_listed_with_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("1.jsonl", "a/2.jsonl", "a/b/3.jsonl", "a/b/4.csv", "_5.jsonl", ".6.jsonl"):
        (tmp_path / name).write_bytes(b"x" * 7)
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden/7.jsonl").touch()
    os.utime(tmp_path / "1.jsonl", ns=(0, 1_234_567_890))
    assert names(tmp_path) == ["1.jsonl", "a/2.jsonl", "a/b/3.jsonl"]
    (one,) = [one for one in walk(str(tmp_path), accepts).files if one.path.endswith("/1.jsonl")]
    assert one == (f"{tmp_path}/1.jsonl", 7, 1234)
    assert walk(f"{tmp_path}/1.jsonl", accepts).files == [one]


def test_hidden_names_are_those_of_spark() -> None:
    assert [is_hidden(name) for name in ("_a", ".a", "a._COPYING_", "_SUCCESS")] == [True] * 4
    assert [is_hidden(name) for name in ("a", "_k=1", "_metadata", "_common_metadata")] == [
        False
    ] * 4


def test_links_that_lead_out_are_refused_unless_asked_for(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "in"
    outside.mkdir()
    root.mkdir()
    (outside / "secret.jsonl").touch()
    (outside / "secret.csv").touch()
    (tmp_path / "in-too").mkdir()  # the name alone begins like the folder's
    (root / "sub").mkdir()
    (root / "sub/1.jsonl").touch()
    (root / "file.jsonl").symlink_to(outside / "secret.jsonl")
    (root / "other.csv").symlink_to(outside / "secret.csv")  # would not be read anyway
    (root / "folder").symlink_to(outside)
    (root / "near").symlink_to(tmp_path / "in-too")
    (root / "nothing.jsonl").symlink_to(tmp_path / "nowhere")
    (root / "inside.jsonl").symlink_to(root / "sub/1.jsonl")
    found = walk(str(root), accepts)
    links = ["file.jsonl", "folder", "near", "nothing.jsonl"]
    assert sorted(found.outside) == [f"{root}/{name}" for name in links]
    assert names(root) == ["inside.jsonl", "sub/1.jsonl"]
    followed = ["file.jsonl", "folder/secret.jsonl", "inside.jsonl", "sub/1.jsonl"]
    assert names(root, follow_links=True) == followed
    # the folder itself may be a link: it is the one that was asked for
    (tmp_path / "link").symlink_to(root)
    assert names(tmp_path / "link") == ["inside.jsonl", "sub/1.jsonl"]


@pytest.mark.parametrize("follow_links", [False, True])
def test_links_in_a_circle_end(tmp_path: Path, *, follow_links: bool) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a/b/1.jsonl").touch()
    (tmp_path / "a/b/up").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to(tmp_path)
    assert names(tmp_path, follow_links=follow_links) == ["a/b/1.jsonl"]


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")  # opening it would wait for ever
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "1.jsonl").touch()
    assert names(tmp_path) == ["1.jsonl"]


def test_names_that_are_no_text_are_told(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl")).touch()
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    found = walk(str(tmp_path), accepts)
    assert found.files == []
    assert list(found.unlisted.values()) == ["its name is not UTF-8"]


def test_a_folder_that_cannot_be_listed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "1.jsonl").touch()
    scandir = os.scandir

    def refusing(path: str):  # root may read everything
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = walk(str(tmp_path), accepts)
    assert found.unlisted == {f"{tmp_path}/closed": "Permission denied"}
    assert len(found.files) == 1
    with pytest.raises(ConfigError, match="cannot read the folder"):
        walk(str(tmp_path / "closed"), accepts)


def test_a_file_that_cannot_be_examined_is_told_and_a_link_to_itself_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1.jsonl", "closed.jsonl", "gone.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    (tmp_path / "loop").symlink_to("loop")
    examine = os.stat

    def refusing(path: str, **options: bool) -> os.stat_result:  # root may examine everything
        if str(path).endswith("closed.jsonl"):
            raise PermissionError(13, "Permission denied")
        if str(path).endswith("gone.jsonl"):
            raise FileNotFoundError
        return examine(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    found = walk(str(tmp_path), accepts)
    assert [Path(one.path).name for one in found.files] == ["1.jsonl"]
    assert found.unlisted == {
        f"{tmp_path}/closed.jsonl": "Permission denied",
        f"{tmp_path}/loop.jsonl": "Too many levels of symbolic links",
    }


def test_addresses_and_paths_are_the_same_files() -> None:
    for path in ("/in/a b%20é;.jsonl", "s3a://bucket/a b%.jsonl", "/in/😀#?.jsonl"):
        assert path_of(address(path)) == path
    assert address("/in/a b%é;x.jsonl") == "file:///in/a%20b%25é;x.jsonl"
    assert path_of("file:/in/a%20%C3%A9") == "/in/a é"  # as Spark's log has it


def test_the_topic_of_a_file_is_its_place_in_the_folder() -> None:
    root = Root("/in", is_local=True, pattern="")
    assert root.topic("/in/deep/a b.jsonl") == "deep/a%20b.jsonl"
    assert Root("/in/a.jsonl", is_local=True, pattern="").topic("/in/a.jsonl") == "a.jsonl"


def test_what_hadoop_tells_of_files_is_read() -> None:
    class Status:
        """A file system with words of its own."""

        def getPath(self) -> str: ...  # noqa: N802

    path = "s3a://b/odd; isDirectory=true; length=1; modification_time=2;\nname.jsonl"
    text = (
        f"S3AFileStatus{{path={path}; isDirectory=false; length=42; replication=1; "
        "blocksize=33554432; modification_time=1795449218583; access_time=0; owner=u; "
        "group=u; permission=rw-rw-rw-; isSymlink=false; hasAcl=false; isEncrypted=true; "
        "isErasureCoded=false} isEmptyDirectory=FALSE eTag=x versionId=null"
    )

    class Statuses:
        def size(self) -> int:
            return 2

        def mkString(self, parting: str) -> str:  # noqa: N802
            return parting.join([text, text.replace("/odd", "/even")])

    first, second = _hadoop_files(Statuses())
    assert first == (path, 42, 1795449218583)
    assert second.path.startswith("s3a://b/even")
