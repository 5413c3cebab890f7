# SPDX-License-Identifier: Apache-2.0
"""Rules that hold for every test: what its folder makes it, what runs first, what may be skipped.

Tests under ``tests/spark`` are marked ``spark``, those under ``tests/integration`` ``services``.
Tests of :data:`LONG` files are marked ``long``: ``make test-long`` runs them.
Fast tests run first. On CI (the variable ``CI`` is set) nothing of these two kinds may be skipped:
a service that did not start is a failure there, and a reason to skip everywhere else.

Each run has a time zone and a locale of its own, drawn from a seed that the header prints:
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

import pytest
from hypothesis import settings

from changelane.testing.conformance import EFFORT

ROOT = Path(__file__).resolve().parent.parent
MARKER_OF_FOLDER = {"spark": "spark", "integration": "services"}
SLOW_LAST = ("spark", "services")
# These begin first, so that no process waits long for the last file of the other one.
LONGEST_FIRST = [
    f"test_{name}.py"
    for name in (
        *("killed_run", "equality", "purge", "kafka_source", "cluster", "admission", "fanout"),
        "readme_blocks",
        *("crash", "modes", "run_command", "schema_changes", "counterexamples", "kafka_sink"),
        *("fidelity", "keeping", "files_source", "expressions", "library", "catalogs"),
    )
]
LONG = {
    f"test_{name}.py"
    for name in (
        *("additions", "admission", "catalogs", "check", "cluster", "equality", "expressions"),
        *("fanout", "files_in_folders", "kafka_sink", "keeping", "key_changes", "killed_run"),
        *("late_columns", "purge", "readme_blocks", "repeats", "resend", "schema_changes"),
        *("seed_jobs", "shared_names", "soft_deletes", "status", "transforms"),
    )
}
"""What `make test` leaves to `make test-long`: many histories, tables or kills of each kind."""
ON_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}

# How long one example takes says more about the machine's other work than about the code; `make
# fuzz` takes ten times as many.
settings.register_profile("changelane", deadline=None, max_examples=40 * EFFORT)
settings.load_profile("changelane")

# Local Spark listens on this machine only.
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


# Decimal commas, dotless letters, other digits, as far as the machine knows them.
LOCALES = ("C", "C.UTF-8", "POSIX", "de_DE.UTF-8", "tr_TR.UTF-8", "fr_FR.UTF-8", "ar_EG.UTF-8")
# The workers of a run inherit the seed of their controller, and so all are in one place.
SEED = os.environ.setdefault("CHANGELANE_TEST_SEED", str(random.SystemRandom().randrange(2**32)))
OWN_PLACE = {name: os.environ.get(name) for name in ("TZ", "LC_ALL")}


def _go(place: dict[str, str | None]) -> None:
    """Take on a time zone and a locale, for this process and those that it starts."""
    for name, value in place.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    time.tzset()
    with suppress(locale.Error):  # the machine's own may be one that it does not have
        locale.setlocale(locale.LC_ALL, "")


def _drawn_place() -> dict[str, str | None]:
    draw = random.Random(SEED)
    zone = draw.choice(sorted(zoneinfo.available_timezones() - {"localtime", "Factory"}))
    known = []
    for name in LOCALES:
        with suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            known.append(name)
    return {"TZ": zone, "LC_ALL": draw.choice(known)}


PLACE = _drawn_place()
_go(PLACE)


def pytest_report_header() -> str:
    drawn = " ".join(f"{name}={value}" for name, value in PLACE.items())
    return f"changelane: CHANGELANE_TEST_SEED={SEED} ({drawn})"


@pytest.fixture(scope="session")
def own_place() -> Iterator[None]:
    """The time zone and the locale of the machine, for what must not be started elsewhere."""
    _go(OWN_PLACE)
    yield
    _go(PLACE)


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The address of a Kafka broker, which tests share: each takes topics of its own."""
    from changelane.spark.runtime.dev_broker import broker

    with broker() as found:
        yield found.servers


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The sample messages: CHANGELANE_CORPUS, else ``../shared/corpus`` beside the checkout."""
    folder = Path(os.environ.get("CHANGELANE_CORPUS") or ROOT.parent / "shared" / "corpus")
    if not folder.is_dir():
        pytest.skip("no sample messages: set CHANGELANE_CORPUS to their folder")
    return folder


def _slow_marker(path: Path) -> str | None:
    """The marker of the slow folder that holds this path, if any."""
    try:
        folder = path.relative_to(ROOT / "tests").parts[0]
    except ValueError:
        return None
    return MARKER_OF_FOLDER.get(folder)


def _slowness(item: pytest.Item) -> int:
    return max(
        (SLOW_LAST.index(m.name) + 1 for m in item.iter_markers() if m.name in SLOW_LAST), default=0
    )


def _place(item: pytest.Item) -> tuple[int, int]:
    name = item.path.name
    rank = LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)
    return _slowness(item), rank if _slowness(item) else 0


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if marker := _slow_marker(item.path):
            item.add_marker(marker)
            if item.path.name in LONG:
                item.add_marker("long")
    items.sort(key=_place)


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped on CI, where nothing of this kind may be: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped, too; that one is fine.
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
