"""Python workers read the directory of an archive once, and again when the archive changed."""

import importlib
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from pathlib import Path

import pytest

from changelane.spark.runtime.zip_imports import is_worker, keep_zip_directories


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An archive on the import path, one module of which was imported."""
    path = tmp_path / "told.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("changelane_told/__init__.py", "")
        file.writestr("changelane_told/one.py", "VALUE = 1")
    monkeypatch.syspath_prepend(str(path))
    importlib.import_module("changelane_told.one")
    yield path
    for name in [name for name in sys.modules if name.startswith("changelane_told")]:
        del sys.modules[name]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The archives that importers read from here on."""
    told: list[str] = []
    reread = zipimport.zipimporter.invalidate_caches

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        told.append(self.archive)
        reread(self)

    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", invalidate_caches)
    return told


def test_an_archive_that_stays_is_not_read_again(archive: Path, reads: list[str]) -> None:
    keep_zip_directories()
    for _ in range(3):
        importlib.invalidate_caches()
    assert str(archive) not in reads


def test_what_is_added_to_an_archive_is_found(archive: Path, reads: list[str]) -> None:
    keep_zip_directories()
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("changelane_told/two.py", "VALUE = 2")
    importlib.invalidate_caches()
    assert importlib.import_module("changelane_told.two").VALUE == 2
    # each importer, one for the archive and one for the package in it
    assert reads.count(str(archive)) == 2
    importlib.invalidate_caches()
    assert reads.count(str(archive)) == 2


@pytest.mark.usefixtures("reads")
def test_an_archive_that_went_is_none_that_stays(archive: Path) -> None:
    keep_zip_directories()
    archive.rename(archive.with_suffix(".gone"))
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("changelane_told.two")


def test_a_process_that_spark_did_not_start_is_no_worker() -> None:
    assert not is_worker()
