# SPDX-License-Identifier: Apache-2.0
"""Rules for every test: its markers by folder, the order of the tests, which may be skipped.

Tests under ``tests/spark`` are marked ``spark``, those under ``tests/integration`` ``services``.
Tests of the files of :data:`LONG_PARTS` are marked ``long``: ``make test-long`` runs them.
Fast tests run first. On CI (the variable ``CI`` is set) no test marked ``spark`` or ``services``
may be skipped: a service that did not start is a failure there, and a reason to skip elsewhere.

Each run has its own time zone and locale, drawn from a seed that the header prints:
``CHANGELANE_TEST_SEED`` sets it. Spark's tests start the JVM in the zone of the machine.
"""

import locale
import os
import random
import time
import zoneinfo
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from changelane.formats.contract import open_lanes
from changelane.testing.conformance import EFFORT

if TYPE_CHECKING:
    from mariadb_server import MariadbServer
    from postgres_server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
MARKER_OF_FOLDER = {"spark": "spark", "integration": "services"}
SLOW_LAST = ("spark", "services")
# The longest files start first, so that no worker waits long for another one's last file.
LONGEST_FIRST = [
    f"test_{name}.py"
    for name in (
        *("killed_run", "equality", "purge", "captured_kills", "kafka_source", "cluster"),
        *("admission", "fanout"),
        "readme_blocks",
        *(
            "latest",
            "crash",
            "modes",
            "run_command",
            "schema_changes",
            "counterexamples",
            "kafka_sink",
        ),
        *("fidelity", "keeping", "files_source", "expressions", "library", "catalogs"),
    )
]
LONG_PARTS: Final = (
    (
        *("admission", "apicurio", "capture_object_store", "cluster", "equality", "fanout"),
        "installed_sink",
        *("key_changes", "late_columns", "layout", "postgres_plugins", "quarantine", "resend"),
        "transforms",
    ),
    (
        *("capture_engine", "catalogs", "dispatch", "expressions", "fence", "new_format", "purge"),
        *("query_page", "readme_blocks", "schema_changes", "seed_jobs", "sequence", "shared_names"),
        *("verify", "waiting_changes"),
    ),
    (
        *("additions", "capture_mariadb", "check", "files_in_folders", "kafka_sink", "keeping"),
        *("killed_run", "merge_on_read", "postgres_snapshot", "repeats", "small_batches"),
        *("soft_deletes", "status", "tombstones"),
    ),
    (
        *("capture_cluster", "capture_connect", "capture_experimental", "capture_formats"),
        *("full_disk", "mariadb_snapshot"),
        *("full_lake", "capture_partitions"),
        *("mariadb_table_snapshots", "verify_lakes", "verify_mariadb"),
    ),
)
"""The files that run in `make test-long` only: many histories, tables or kills of each kind.

They form parts of about the same length, one of which CI runs on each day. A test with the marker
``long`` in another file is of the first part.
"""
PART_OF_FILE: Final = {
    f"test_{name}.py": part for part, names in enumerate(LONG_PARTS, 1) for name in names
}
LONG_PART = os.environ.get("CHANGELANE_LONG_PART", "")
"""The number of the part of the long tests to run, beside other tests; empty = all."""
ON_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# no deadline for one example: on a shared machine it measures other work; `make fuzz` runs ten
# times as many examples
settings.register_profile("changelane", deadline=None, max_examples=40 * EFFORT)
settings.load_profile("changelane")

# Local Spark listens on this machine only.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


# decimal commas, dotless letters, other digits; only those installed on the machine
LOCALES = ("C", "C.UTF-8", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8", "fr_FR.UTF-8", "ar_EG.UTF-8")
# The workers of a run inherit the seed of their controller, so all have one zone and locale.
SEED = os.environ.setdefault("CHANGELANE_TEST_SEED", str(random.SystemRandom().randrange(2**32)))
MACHINE_LOCALE = {name: os.environ.get(name) for name in ("TZ", "LC_ALL")}


def _set_locale(settings: dict[str, str | None]) -> None:
    """Set time zone and locale, for this process and those that it starts."""
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    time.tzset()
    with suppress(locale.Error):  # the configured locale may not be installed
        locale.setlocale(locale.LC_ALL, "")


def _draw_locale() -> dict[str, str | None]:
    draw = random.Random(SEED)
    zone = draw.choice(sorted(zoneinfo.available_timezones() - {"localtime", "Factory"}))
    installed = []
    for name in LOCALES:
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            installed.append(name)
    return {"TZ": zone, "LC_ALL": draw.choice(installed)}


DRAWN_LOCALE = _draw_locale()
_set_locale(DRAWN_LOCALE)


def pytest_report_header() -> str:
    drawn = " ".join(f"{name}={value}" for name, value in DRAWN_LOCALE.items())
    return f"changelane: CHANGELANE_TEST_SEED={SEED} ({drawn})"


@pytest.fixture(scope="session")
def machine_locale() -> Iterator[None]:
    """The time zone and locale of the machine, for processes that must not start in others."""
    _set_locale(MACHINE_LOCALE)
    yield
    _set_locale(DRAWN_LOCALE)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a Kafka broker, which the tests share; each uses its own topics."""
    from changelane.spark.runtime.dev_broker import broker

    with broker() as running:
        yield running.servers


@pytest.fixture(scope="session")
def postgres_server() -> "Iterator[PostgresServer]":
    """A PostgreSQL, which the tests share; each makes its own database (``new_database``)."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: changelane[capture]")
    from postgres_server import NotInstalledError, PostgresServer

    try:
        server = PostgresServer()
    except NotInstalledError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> "Iterator[MariadbServer]":
    """A MariaDB, which the tests share; each makes its own database (``new_database``)."""
    pytest.importorskip("pymysql", reason="pymysql is not installed: changelane[capture]")
    from mariadb_server import MariadbServer, NotInstalledError

    try:
        server = MariadbServer()
    except NotInstalledError as error:
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The sample messages: CHANGELANE_CORPUS, else ``../shared/corpus`` beside the checkout."""
    folder = Path(os.environ.get("CHANGELANE_CORPUS") or ROOT.parent / "shared" / "corpus")
    if not folder.is_dir():
        pytest.skip("no sample messages: set CHANGELANE_CORPUS to their folder")
    return folder


def _slow_marker(path: Path) -> str | None:
    """The marker of the slow folder that this path is in, if any."""
    try:
        folder = path.relative_to(ROOT / "tests").parts[0]
    except ValueError:
        return None
    return MARKER_OF_FOLDER.get(folder)


def _slowness(item: pytest.Item) -> int:
    return max(
        (SLOW_LAST.index(m.name) + 1 for m in item.iter_markers() if m.name in SLOW_LAST), default=0
    )


def _order(item: pytest.Item) -> tuple[int, int]:
    name = item.path.name
    rank = LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)
    return _slowness(item), rank if _slowness(item) else 0


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if marker := _slow_marker(item.path):
            item.add_marker(marker)
            if item.path.name in PART_OF_FILE:
                item.add_marker("long")
    if LONG_PART:
        part = int(LONG_PART)
        items[:] = [
            item
            for item in items
            if not item.get_closest_marker("long") or PART_OF_FILE.get(item.path.name, 1) == part
        ]
    items.sort(key=_order)


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped on CI, where no test of this kind may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # an expected failure is reported as skipped, too, and is no problem
    if ON_CI and report.skipped and not hasattr(report, "wasxfail") and _slowness(item):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if ON_CI and report.skipped and _slow_marker(collector.path):
        _fail(report)
    return report


@pytest.fixture(scope="module")
def early_lanes() -> Iterator[None]:
    """Open a lane after the first message of a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_lanes, "MESSAGES_BEFORE_LANE", 1)
        yield
