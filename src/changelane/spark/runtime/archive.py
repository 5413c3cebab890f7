# SPDX-License-Identifier: Apache-2.0
"""An archive of changelane and its dependencies for workers, without Spark and the interpreter.

``spark.archives`` ships it to each executor, which unpacks it as a folder; that folder is the
``PYTHONPATH`` of its Python. Workers need no installation, no compiler and no container. The
archive contains exactly the installed versions, so that the driver and its workers pickle and
unpickle with the same code.
"""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import ConfigError

MANIFEST: Final = "changelane-archive.json"
CLUSTER_PACKAGES: Final = frozenset({"pyspark", "py4j"})
"""The packages that the cluster has already."""

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_REQUIREMENT: Final = re.compile(
    r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;.*)?", re.DOTALL
)
_EXTRA: Final = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
# files of an installer about its own machine
_MACHINE_FILES: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of an archive.

    Attributes:
        python: The minor version of its Python, such as ``3.11``.
        platform: Its platform, such as ``linux-x86_64``.
        sources: The :func:`fingerprint` of its changelane.
        packages: Its packages, with versions.
    """

    python: str
    platform: str
    sources: str
    packages: dict[str, str]


def python_version() -> str:
    """Return the minor version of the running Python, such as ``3.11``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def fingerprint() -> str:
    """Return a hash of changelane's sources: equal in two processes that run the same code."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("changelane"))):
        digest.update(f"{name} {len(source)}\n".encode())
        digest.update(source)
    return digest.hexdigest()


def _sources(folder: Traversable, path: str = "") -> Iterator[tuple[str, bytes]]:
    for child in folder.iterdir():
        if child.is_dir():
            yield from _sources(child, f"{path}{child.name}/")
        elif child.name.endswith(".py"):
            yield path + child.name, child.read_bytes()


def check(archive: str | Path) -> Manifest:
    """Return the manifest of an archive that workers can use with this driver.

    Raises:
        ConfigError: The file is no archive, or has another Python or another changelane.
    """
    fix = "run `changelane package` again in this environment"
    try:
        with zipfile.ZipFile(archive) as zip_file:
            manifest = msgspec.json.decode(zip_file.read(MANIFEST), type=Manifest)
    except FileNotFoundError:
        msg = f"there is no archive {archive}: run `changelane package --output {archive}`"
        raise ConfigError(msg) from None
    except (KeyError, OSError, zipfile.BadZipFile, msgspec.DecodeError):
        raise ConfigError(f"{archive} was not made by `changelane package`") from None
    if manifest.python != python_version():
        msg = f"{archive} is for Python {manifest.python}, and this is {python_version()}: {fix}"
        raise ConfigError(msg)
    if manifest.sources != fingerprint():
        raise ConfigError(f"{archive} contains another changelane than the one that runs: {fix}")
    return manifest


# -- the packages


class Package(NamedTuple):
    """An installed package."""

    name: str
    version: str


def required_packages(extras: Iterable[str] = ()) -> list[Package]:
    """Return changelane and its dependencies on a worker, in the installed versions.

    Args:
        extras: Names of other packages that workers need, such as one with a format.

    Raises:
        ConfigError: One of them is not installed.
    """
    packages: dict[str, Package] = {}
    for name in ("changelane[spark]", *extras):
        _add_requirement(name, packages, needs="")
    return [packages[name] for name in sorted(packages)]


def _add_requirement(
    requirement: str, packages: dict[str, Package], *, needs: str, is_sure: bool = True
) -> None:
    match = _REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise ConfigError(f"{requirement} is not the name of a package")
    name = _normalized_name(match[1])
    extras = {_normalized_name(extra) for extra in (match[2] or "").split(",") if extra.strip()}
    if name in CLUSTER_PACKAGES or (name in packages and not extras):
        return
    try:
        metadata = distribution(name)
    except PackageNotFoundError:
        if not is_sure:
            return  # the condition of the requirement is false, or it would be installed
        why = (
            f"{needs} needs it, also on workers" if needs else "only installed packages are packed"
        )
        raise ConfigError(f"{name} is not installed: {why}") from None
    packages[name] = Package(name, metadata.version)
    for line in metadata.requires or ():
        condition = line.partition(";")[2]
        extra = _EXTRA.search(condition)
        if extra is None or _normalized_name(extra[1]) in extras:
            marker = _EXTRA.sub("", condition).strip(" ()")
            _add_requirement(line, packages, needs=name, is_sure=not marker)


def _normalized_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


class _Entry(NamedTuple):
    """A file of an archive."""

    name: str
    path: Path


def _installed_files(package: Package) -> Iterator[_Entry]:
    metadata = distribution(package.name)
    if metadata.files is None:
        raise ConfigError(f"the files of {package.name} are unknown: install it with pip")
    is_ours = package.name == "changelane"
    if is_ours:
        yield from _own_files()
    elif '"editable": true' in (metadata.read_text("direct_url.json") or ""):
        msg = f"{package.name} is installed as editable: install it as a wheel to pack it"
        raise ConfigError(msg)
    for file in metadata.files:
        name = file.as_posix()
        if is_ours and not file.parts[0].endswith(".dist-info"):
            continue  # the sources of a checkout are elsewhere
        # the commands of an environment are outside of its packages
        if file.parts[0] != ".." and not file.is_absolute() and _is_packed(name):
            yield _Entry(name, Path(str(metadata.locate_file(file))))


def _own_files() -> Iterator[_Entry]:
    folder = Path(str(files("changelane")))
    yield from _files_below(folder, folder.parent)


def _files_below(folder: Path, root: Path) -> Iterator[_Entry]:
    for path in folder.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and _is_packed(name):
            yield _Entry(name, path)


def _is_packed(name: str) -> bool:
    *folders, last = name.split("/")
    if folders and folders[-1].endswith(".dist-info") and last in _MACHINE_FILES:
        return False
    return "__pycache__" not in folders and not last.endswith((".pyc", ".pth"))


# -- wheels of another platform


def wheel_tags(platform: str) -> list[str]:
    """Return the tags of the wheels for a platform; a platform tag of pip is returned unchanged.

    ``linux-x86_64`` and ``linux-aarch64`` are Linux with glibc 2.28 or newer.

    >>> wheel_tags("linux-aarch64")[:2]
    ['manylinux_2_28_aarch64', 'manylinux_2_27_aarch64']
    >>> wheel_tags("macosx_14_0_arm64")
    ['macosx_14_0_arm64']
    """
    system, _, machine = platform.partition("-")
    if system != "linux" or not machine:
        return [platform]
    return [f"manylinux_2_{minor}_{machine}" for minor in range(28, 16, -1)] + [
        f"manylinux2014_{machine}",
        f"manylinux1_{machine}",
    ]


def _fetch_wheels(
    packages: Sequence[Package], platform: str, python: str, folder: Path, output: Any
) -> None:
    """Unpack the wheels of packages for another platform.

    Raises:
        ConfigError: There is no pip, or pip does not find one of the wheels.
    """
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--no-compile", "--target", str(folder)]
    command += ["--implementation", "cp", "--python-version", python]
    for tag in wheel_tags(platform):
        command += ["--platform", tag]
    command += [f"{package.name}=={package.version}" for package in packages]
    process = subprocess.run(command, stdout=output, stderr=output, check=False)  # noqa: S603 - our own arguments
    if process.returncode:
        msg = (
            f"pip could not fetch wheels for {platform} and Python {python} (see above): the "
            "archive needs wheels of the installed versions"
        )
        raise ConfigError(msg)


# -- writing


class ArchiveTarget(NamedTuple):
    """The platform and the Python of an archive."""

    platform: str
    python: str


def target_of(platform: str | None = None, python: str | None = None) -> ArchiveTarget:
    """Return the platform and the Python of an archive; the default is this machine's."""
    return ArchiveTarget(platform or sysconfig.get_platform(), python or python_version())


def default_name(platform: str, python: str) -> str:
    """Return the default name of an archive.

    Raises:
        ConfigError: changelane is not installed, so that its version is unknown.
    """
    own_package = next(package for package in required_packages() if package.name == "changelane")
    return f"changelane-{own_package.version}-py{python}-{platform}.zip"


def write(
    output: Path,
    *,
    platform: str | None = None,
    python: str | None = None,
    extras: Sequence[str] = (),
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    pip_output: Any = None,
) -> Manifest:
    """Write an archive; the same environment produces the same bytes.

    Args:
        output: The file; an older one is replaced when the new one is complete.
        platform: The platform of the workers, as in :func:`wheel_tags`; default: this machine's,
            with its installed files. For another one pip fetches the wheels.
        python: The minor version of the workers' Python; default: the running one.
        extras: Other packages, as in :func:`required_packages`.
        progress: Called with the number of packed bytes and of all bytes.
        pip_output: The destination of pip's output, as in :mod:`subprocess`.

    Raises:
        ConfigError: A package cannot be packed, or there is no wheel of it.
    """
    archive_target = target_of(platform, python)
    packages = required_packages(extras)
    manifest = Manifest(
        python=archive_target.python,
        platform=archive_target.platform,
        sources=fingerprint(),
        packages={package.name: package.version for package in packages},
    )
    with tempfile.TemporaryDirectory() as folder:
        if archive_target == target_of():
            entries = [entry for package in packages for entry in _installed_files(package)]
        else:
            other_packages = [package for package in packages if package.name != "changelane"]
            _fetch_wheels(other_packages, *archive_target, Path(folder), pip_output)
            own_package = next(package for package in packages if package.name == "changelane")
            entries = [*_installed_files(own_package), *_files_below(Path(folder), Path(folder))]
        _write_zip(output, manifest, entries, progress)
    return manifest


def _write_zip(
    output: Path,
    manifest: Manifest,
    entries: Sequence[_Entry],
    progress: Callable[[int, int], None],
) -> None:
    total = sum(entry.path.stat().st_size for entry in entries)
    written_bytes = 0
    part = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        # workers unpack it once; higher compression levels take minutes and save a tenth
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as zip_file:
            zip_file.writestr(
                _zip_info(MANIFEST), msgspec.json.format(msgspec.json.encode(manifest))
            )
            for entry in sorted(dict(entries).items()):
                content = entry[1].read_bytes()
                zip_file.writestr(_zip_info(entry[0]), content)
                written_bytes += len(content)
                progress(written_bytes, total)
        os.replace(part, output)  # noqa: PTH105 - one call
    finally:
        part.unlink(missing_ok=True)


def _zip_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info
