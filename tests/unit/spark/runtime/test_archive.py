"""What `changelane package` packs, and what becomes of an archive that does not fit."""

import json
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.spark.runtime import archive, executors


class Told:
    """An installed package of two files."""

    def __init__(self, folder: Path, name: str, *requires: str, editable: bool = False) -> None:
        self.version = "1.0"
        self.requires = list(requires)
        self._folder = folder
        self._editable = editable
        info = f"{name}-1.0.dist-info"
        files = {
            f"{name}/__init__.py": b"x = 1\n",
            f"{name}/__pycache__/__init__.cpython-311.pyc": b"old",
            f"{name}/_fast.so": b"\x7fELF" + name.encode() * 10,
            f"{info}/METADATA": f"Name: {name}\n".encode(),
            f"{info}/RECORD": b"/home/somebody",
            f"{info}/direct_url.json": b"{}",
        }
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        self.files = [Path(path) for path in [*files, f"../../bin/{name}"]]

    def locate_file(self, path: Path) -> Path:
        return self._folder / path

    def read_text(self, name: str) -> str | None:
        is_editable = self._editable and name == "direct_url.json"
        return '{"dir_info": {"editable": true}}' if is_editable else None


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Told]:
    site = tmp_path / "site"
    found = {
        "changelane": Told(
            site,
            "changelane",
            "msgspec>=0.19",
            "Old_Thing; python_version < '3'",
            "pyarrow>=11; extra == 'spark'",
            "pyspark<5,>=3.5; extra == 'spark'",
            "pytest; extra == 'dev'",
        ),
        "msgspec": Told(site, "msgspec"),
        "pyarrow": Told(site, "pyarrow", "numpy (>=1)"),
        "numpy": Told(site, "numpy"),
        "acme-cdc": Told(site, "acme_cdc", "changelane", "msgspec"),
        "pytest": Told(site, "pytest"),
    }

    def distribution(name: str) -> Told:
        if name not in found:
            raise archive.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(archive, "distribution", distribution)
    return found


def names(*extras: str) -> list[str]:
    return [one.name for one in archive.required_packages(extras)]


def test_it_holds_what_changelane_needs_on_spark_and_not_spark(installed: dict[str, Told]) -> None:
    assert installed
    assert names() == ["changelane", "msgspec", "numpy", "pyarrow"]
    assert names("Acme_CDC") == ["acme-cdc", "changelane", "msgspec", "numpy", "pyarrow"]


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ("pyarrow", "pyarrow is not installed: changelane needs it, also on workers"),
        ("numpy", "numpy is not installed: pyarrow needs it"),
    ],
)
def test_what_is_not_installed_is_not_left_out(
    installed: dict[str, Told], gone: str, why: str
) -> None:
    with pytest.raises(ConfigError, match="nothing-like-it is not installed: only installed"):
        archive.required_packages(["nothing-like-it"])
    del installed[gone]
    with pytest.raises(ConfigError, match=why):
        archive.required_packages()


def test_the_same_environment_gives_the_same_bytes_without_words_of_the_machine(
    installed: dict[str, Told], tmp_path: Path
) -> None:
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    told: list[tuple[int, int]] = []
    archive.write(first, progress=lambda done, total: told.append((done, total)))
    for one in (tmp_path / "site").rglob("*"):
        one.touch()
    archive.write(second)
    assert first.read_bytes() == second.read_bytes()
    assert told[-1][0] == told[-1][1]
    packed = zipfile.ZipFile(first).namelist()
    assert installed
    assert not [name for name in packed if "RECORD" in name or "direct_url" in name]
    assert not [name for name in packed if "__pycache__" in name or "bin/" in name]
    assert "pyarrow/_fast.so" in packed
    assert "pyarrow-1.0.dist-info/METADATA" in packed
    # changelane's own files are those that run, wherever its installation says that they are
    assert "changelane/spark/runtime/log4j2.properties" in packed
    assert "changelane/_fast.so" not in packed
    assert archive.check(first).packages["numpy"] == "1.0"
    assert not list(tmp_path.glob("*.part"))


def test_a_package_that_lies_elsewhere_is_refused(
    installed: dict[str, Told], tmp_path: Path
) -> None:
    installed["msgspec"] = Told(tmp_path / "site", "msgspec", editable=True)
    with pytest.raises(ConfigError, match="msgspec is installed as editable"):
        archive.write(tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_wheels_of_another_platform_are_fetched_in_the_versions_that_are_here(
    installed: dict[str, Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed
    asked: list[list[str]] = []

    def pip(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        folder = Path(command[command.index("--target") + 1])
        (folder / "numpy").mkdir(parents=True)
        (folder / "numpy" / "_fast.cpython-312-aarch64-linux-gnu.so").write_bytes(b"other")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(archive.subprocess, "run", pip)
    file = tmp_path / "a.zip"
    manifest = archive.write(file, platform="linux-aarch64", python="3.12")
    (command,) = asked
    assert command[-3:] == ["msgspec==1.0", "numpy==1.0", "pyarrow==1.0"]
    assert {"--no-deps", "--only-binary=:all:", "manylinux2014_aarch64"} <= set(command)
    assert command[command.index("--python-version") + 1] == "3.12"
    assert (manifest.platform, manifest.python) == ("linux-aarch64", "3.12")
    packed = zipfile.ZipFile(file).namelist()
    assert "numpy/_fast.cpython-312-aarch64-linux-gnu.so" in packed
    assert "changelane/errors.py" in packed

    monkeypatch.setattr(archive.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(ConfigError, match=r"pip could not fetch wheels for linux-aarch64"):
        archive.write(tmp_path / "b.zip", platform="linux-aarch64")
    assert not (tmp_path / "b.zip").exists()


def manifest(**changes: str) -> bytes:
    told = {"python": archive.python_version(), "platform": "linux-x86_64", "packages": {}}
    return json.dumps(told | {"sources": archive.fingerprint()} | changes).encode()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no archive .*: run `changelane package --output"),
        (b"no zip", "was not made by `changelane package`"),
        (manifest(python="3.9"), r"is for Python 3\.9, and this is 3\.\d+: run"),
        (manifest(sources="0"), "contains another changelane than the one that runs"),
        (manifest(), None),
    ],
)
def test_an_archive_that_does_not_fit_the_driver_is_refused(
    tmp_path: Path, content: bytes | None, why: str | None
) -> None:
    file = tmp_path / "a.zip"
    if content == b"no zip":
        file.write_bytes(content)
    elif content is not None:
        with zipfile.ZipFile(file, "w") as opened:
            opened.writestr(archive.MANIFEST, content)
    if why is None:
        assert archive.check(file).platform == "linux-x86_64"
    else:
        with pytest.raises(ConfigError, match=why):
            archive.check(file)


def test_the_fingerprint_changes_with_any_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "a.py").write_text("x = 1\n")

    def told() -> str:
        return archive.fingerprint()

    monkeypatch.setattr(archive, "files", lambda _: tmp_path)
    first = told()
    (tmp_path / "a.pyc").write_bytes(b"compiled")
    assert told() == first
    (tmp_path / "spark" / "a.py").write_text("x = 2\n")
    second = told()
    (tmp_path / "spark" / "a.py").rename(tmp_path / "spark" / "b.py")
    assert len({first, second, told()}) == 3


def test_the_archive_goes_beside_what_the_user_ships(tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr(archive.MANIFEST, manifest())
    told = executors.archive_settings(
        file, {"spark.archives": "mine.tgz#mine", "spark.executorEnv.PYTHONPATH": "mine"}
    )
    assert told == {
        "spark.archives": f"mine.tgz#mine,{file}#_changelane_packages",
        "spark.executorEnv.PYTHONPATH": "_changelane_packages:mine",
    }
    other = file.rename(tmp_path / "a#b.zip")
    with pytest.raises(ConfigError, match="must not contain comma, #, % or blank"):
        executors.archive_settings(other, {})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in",
            r"the workers run Python 3\.9 and the driver 3\.\d+; both must be the same: set spark",
        ),
        (
            'java.io.IOException: Cannot run program "python3.11": error=2, No such file',
            r"the workers have no python3\.11: set spark\.pyspark\.python",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'\n\tat org",
            "has no pyarrow: run `changelane package`",
        ),
        ("No module named 'msgspec._core'", "cannot load msgspec._core, which was built for"),
        (
            "ImportError: libarrow.so.2600: cannot open shared object file\n",
            r"cannot load what changelane needs \(libarrow.so.2600: cannot open",
        ),
    ],
)
def test_workers_that_cannot_begin_are_told_with_the_way_out(words: str, why: str) -> None:
    assert re.search(why, executors._worker_error(words) or "")


def test_the_python_of_executors_is_the_one_that_was_said_or_of_the_drivers_version() -> None:
    assert executors.python_of({executors.PYTHON: "a"}, "b") == "a"
    assert executors.python_of({}, "b") == "b"
    assert executors.python_of({}, None) == f"python{archive.python_version()}"


def test_the_archive_lies_beside_the_pipelines_file(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: a\nsource: {type: files, path: in, format: native-json}\n"
        "sink: {type: delta, path: lake}\noptions: {executor_archive: changelane.zip}\n"
    )
    assert load(file).options.executor_archive == str(tmp_path / "changelane.zip")


def test_the_command_says_what_it_packed(
    installed: dict[str, Told], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert installed
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["package", "--with", "acme-cdc"])
    assert done.exit_code == 0, done.output
    target = archive.target_of()
    name = f"changelane-1.0-py{target.python}-{target.platform}.zip"
    assert done.stdout == f"{name}\n"
    assert f"5 packages for Python {target.python} on {target.platform}" in done.stderr
    assert "acme_cdc/__init__.py" in zipfile.ZipFile(tmp_path / name).namelist()
    wrong = CliRunner().invoke(main, ["package", "--python", "3"])
    assert wrong.exit_code == 2
