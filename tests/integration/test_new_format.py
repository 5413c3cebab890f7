# SPDX-License-Identifier: Apache-2.0
"""A new format: by the five steps of CONTRIBUTING.md, and as an installed package."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ACME = Path(__file__).resolve().parent / "acme"
MINIMUM = """\
    "acme-json": Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}), text_only=True
    ),
"""


def run(*command: str | Path, cwd: Path, source: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this checkout, as far as the formats' own tests need it."""
    for name in ("src", "docs", "scripts", "tests/conformance", "tests/golden"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "acme-json")
        )
    files = ("README.md", "ARCHITECTURE.md", "pyproject.toml", "tests/conftest.py")
    tests = ("architecture.py", "format_pages.py", "generated_pages.py")
    for name in (*files, "tests/public_names.txt", *(f"tests/test_{name}" for name in tests)):
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def insert_line(path: Path, behind: str, line: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(behind) == 1
    path.write_text(text.replace(behind, behind + line), encoding="utf-8")


def test_five_steps_add_a_format(checkout: Path) -> None:
    shutil.copyfile(ACME / "acme.py", checkout / "src/changelane/formats/acme.py")
    insert_line(
        checkout / "src/changelane/formats/__init__.py",
        "FORMATS: Final[dict[str, str]] = {\n",
        '    "acme-json": "changelane.formats.acme",\n',
    )
    golden = checkout / "tests/golden/acme-json/acme-1.0"
    golden.mkdir(parents=True)
    shutil.copyfile(ACME / "ORIGIN", golden / "ORIGIN")
    shutil.copytree(ACME / "insert", golden / "insert")
    shutil.copyfile(ACME / "acme-json.md", checkout / "docs" / "formats" / "acme-json.md")
    with (checkout / "docs" / "formats" / "README.md").open("a", encoding="utf-8") as formats:
        formats.write("\n| [acme-json](acme-json.md) | Acme | inserts | own | - |\n")
    insert_line(checkout / "tests/conformance/test_formats.py", "MINIMUM = {\n", MINIMUM)
    # what `make golden` does
    pytest_of = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not spark")
    source = checkout / "src"
    run(
        *pytest_of, "tests/conformance", "-k", "acme", "--golden=write", cwd=checkout, source=source
    )
    run(sys.executable, "scripts/write_pages.py", cwd=checkout, source=source)
    assert (checkout / "tests/golden/acme-json/encoded/insert.jsonl").is_file()
    told = run(*pytest_of, "tests/conformance", "-k", "acme", cwd=checkout, source=source)
    assert " passed" in told
    # the pages, the shape of the code, and the tests of the kit that do not name the format
    run(*pytest_of, "tests", "-k", "not canal and not debezium", "--ignore=tests/conformance",
        cwd=checkout, source=source)  # fmt: skip


def test_a_format_of_another_package_is_found_and_conforms(tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(ACME, package)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    wheel = (*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path)
    run(*wheel, package, cwd=tmp_path)
    (built,) = tmp_path.glob("acme_cdc-*.whl")
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    run(*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", built, cwd=tmp_path)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(
        f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8"
    )
    shown = run(python, "-m", "changelane", "formats", cwd=tmp_path)
    assert "acme-json" in shown
    message = (ACME / "insert" / "value").read_text(encoding="utf-8")
    (tmp_path / "in.jsonl").write_text(message, encoding="utf-8")
    options = ("-f", "acme-json", "-t", "canal-json", "--on-loss", "warn")
    run(python, "-m", "changelane", "convert", *options, "in.jsonl", "out.jsonl", cwd=tmp_path)
    assert '"orders"' in (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    (tmp_path / "test_acme.py").write_text(
        "import pytest\n"
        "from changelane import get_codec\n"
        "from changelane.testing import CHECKS\n\n"
        '@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)\n'
        "def test_acme_conforms(check):\n"
        '    check(get_codec("acme-json"))\n',
        encoding="utf-8",
    )
    told = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py", cwd=tmp_path)
    assert " passed" in told
