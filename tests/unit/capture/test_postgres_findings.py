# SPDX-License-Identifier: Apache-2.0
"""Findings about states of PostgreSQL that no server of the tests has: other versions, Amazon's."""

from collections.abc import Iterable
from typing import Any

import pytest

from changelane.capture.finding import Finding, about_tables, has_errors
from changelane.capture.postgres.publication import Publication, PublishedTable, plan_publication
from changelane.capture.postgres.publication_findings import publication_findings
from changelane.capture.postgres.replication import SlotState
from changelane.capture.postgres.server_findings import (
    ServerState,
    blocking_findings,
    server_findings,
)
from changelane.capture.postgres.slot_findings import slot_findings
from changelane.capture.postgres.table_findings import table_findings
from changelane.capture.postgres.tables import CapturedTable, Columns, Kind, Relation
from changelane.pipeline.config_checks import problem, warning

LIMIT = 1 << 30


def table(name: str, kind: Kind = "table", **state: Any) -> CapturedTable:
    relation = Relation(oid=hash(name), schema="s", name=name, kind=kind)
    return CapturedTable(relation=relation, **{"primary_key": Columns("key", ("id",)), **state})


def by_defect(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.defect: finding for finding in findings}


def server_codes(**state: Any) -> dict[str, Finding]:
    server = ServerState(**{"version": 150018, "max_slot_wal_keep_size": LIMIT, **state})
    return by_defect(server_findings(server, None))


def test_a_finding_is_a_line_of_the_check_command() -> None:
    finding = Finding(
        severity="error",
        defect="any",
        about="table a.b",
        problem="no key",
        consequence="deletes are lost",
        statements=("ONE", "TWO", "THREE", "FOUR"),
        advice="and wait",
    )
    fix = "ONE; TWO; THREE; and 1 more statements; and wait"
    assert finding.text() == str(problem("table a.b", "no key; deletes are lost", fix))
    plain = Finding(severity="warning", defect="any", about="x", problem="p", consequence="c")
    assert plain.text() == str(warning("x", "p; c"))
    assert has_errors([plain, finding])
    assert not has_errors([plain])
    assert about_tables(list("abcde")) == "tables a, b, c and 2 more"


@pytest.mark.parametrize(
    ("version", "codes"), [(100023, {"version"}), (110022, set()), (180001, set())]
)
def test_versions_without_truncates_are_rejected(version: int, codes: set[str]) -> None:
    assert by_defect(blocking_findings(ServerState(version=version))).keys() == codes


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (120022, "upgrade to 13.21 or later"),
        (130020, "upgrade to 13.21 or later"),
        (170004, "upgrade to 17.5 or later"),
    ],
)
def test_versions_that_lose_changes_beside_ddl_are_found(version: int, advice: str) -> None:
    assert server_codes(version=version)["known_loss"].advice == advice


@pytest.mark.parametrize("version", [130021, 140018, 150013, 170005, 180000, 190000])
def test_mended_versions_have_no_finding(version: int) -> None:
    assert not server_codes(version=version)


def test_settings_of_amazon_are_in_a_parameter_group() -> None:
    findings = server_codes(
        is_rds=True,
        wal_level="replica",
        has_replication=False,
        max_slot_wal_keep_size=None,
        slot_count=10,
        user='a"b',
    )
    assert findings["wal_level"].statements == ()
    assert "rds.logical_replication = 1" in findings["wal_level"].advice
    assert findings["replication_privilege"].statements == ('GRANT rds_replication TO "a""b"',)
    assert "parameter group" in findings["unlimited_retention"].advice
    assert "max_replication_slots = 15" in findings["replication_slots"].advice


def test_versions_without_a_limit_of_the_log_get_advice() -> None:
    finding = server_codes(version=120022, has_keep_size=False, max_slot_wal_keep_size=None)
    assert finding["unlimited_retention"].statements == ()
    assert finding["unlimited_retention"].advice


def test_a_slot_without_a_limit_shows_the_log_that_it_keeps() -> None:
    slot = SlotState(name="x", retained_bytes=3 << 20)
    findings = by_defect(server_findings(ServerState(version=150018), slot))
    problem_text = findings["unlimited_retention"].problem
    assert problem_text.endswith("(slot x: 3.0 MB of the log kept, without a limit)")


def test_a_timeout_of_idle_slots_is_found() -> None:
    assert server_codes(idle_slot_timeout="1d").keys() == {"idle_slot_timeout"}


def slot_codes(slot: SlotState | None, **options: Any) -> dict[str, Finding]:
    server = ServerState(max_slot_wal_keep_size=LIMIT)
    return by_defect(slot_findings("x", slot, server, **{"database": "shop", **options}))


def test_a_sound_slot_has_no_finding() -> None:
    slot = SlotState(name="x", database="shop", confirmed_flush_lsn=7, safe_wal_size=LIMIT)
    assert not slot_codes(slot, position=7)
    assert not slot_codes(None)


def test_a_lost_slot_names_its_reason_and_nothing_else() -> None:
    slot = SlotState(
        name="x", database="shop", invalidation_reason="idle_timeout", lag_bytes=LIMIT * 5
    )
    findings = slot_codes(slot, position=1)
    assert findings.keys() == {"slot_lost"}
    assert "idle_timeout" in findings["slot_lost"].problem


def test_headroom_is_reported_in_the_last_quarter() -> None:
    def slot(headroom: int) -> SlotState:
        return SlotState(name="x", database="shop", wal_status="reserved", safe_wal_size=headroom)

    assert not slot_codes(slot(LIMIT // 4))
    finding = slot_codes(slot(LIMIT // 4 - 1))["slot_headroom"]
    assert "255.9 MB until the slot may be lost" in finding.problem
    assert finding.statements[0].endswith("= '2048MB'")


def publication_codes(
    publication: Publication | None, *tables: CapturedTable, **state: Any
) -> dict[str, Finding]:
    server = ServerState(**{"version": 150018, **state})
    return by_defect(publication_findings("p", publication, tables, server))


def test_a_version_without_partitioned_publications_needs_the_partitions() -> None:
    findings = publication_codes(None, table("t", "partitioned table"), version=120022)
    assert findings.keys() == {"partitioned_table"}
    findings = publication_codes(None, table("t"), version=120022)
    assert "via_partition_root" not in findings["publication_missing"].statements[0]


def test_an_owner_creates_the_publication_with_the_first_run() -> None:
    assert publication_codes(None, table("t"))["publication_missing"].severity == "warning"
    for findings in (
        publication_codes(None, table("t", is_owned=False)),
        publication_codes(None, table("t"), can_create=False),
    ):
        assert findings["publication_missing"].severity == "error"
    assert not publication_codes(None)


def test_a_publication_of_all_tables_lacks_none() -> None:
    publication = Publication(name="p", is_for_all_tables=True)
    assert not publication_codes(publication, table("t"))
    assert plan_publication(publication, "p", [table("t").relation], 150018) == []


def test_generated_columns_are_published_from_version_18() -> None:
    publication = Publication(name="p", is_for_all_tables=True)
    generated = table("t", generated=("g",))
    finding = publication_codes(publication, generated, version=180001)["generated_columns"]
    assert finding.statements == ('ALTER PUBLICATION "p" SET (publish_generated_columns = stored)',)
    mended = Publication(name="p", is_for_all_tables=True, has_generated=True)
    assert not publication_codes(mended, generated, version=180001)
    virtual = publication_codes(mended, table("t", virtual=("v",)), version=180001)
    assert virtual["generated_columns"].statements == ()


def test_a_key_with_a_generated_column_is_an_error() -> None:
    publication = Publication(name="p", is_for_all_tables=True)
    keyed = table("t", generated=("id",))
    assert publication_codes(publication, keyed)["generated_columns"].severity == "error"


def test_columns_added_after_a_column_list_are_found() -> None:
    publication = Publication(
        name="p",
        tables={("s", "t"): PublishedTable(columns=("id",))},
        members=frozenset({("s", "t")}),
    )
    assert not publication_codes(publication, table("t", columns=("id",)))
    findings = publication_codes(publication, table("t", columns=("id", "n")))
    assert findings["publication_columns"].problem.endswith("s.t.n")


def test_many_tables_share_a_finding_with_a_statement_for_each() -> None:
    tables = [table(f"t{number}", primary_key=None) for number in range(1000)]
    findings = by_defect(table_findings(tables, ServerState()))
    finding = findings["replica_identity_no_key"]
    assert len(finding.statements) == 1000
    assert finding.about == "tables s.t0, s.t1, s.t2 and 997 more"
    assert len(finding.text()) < 500


def test_a_deferrable_key_beside_an_index_needs_the_full_identity() -> None:
    keyed = table(
        "t",
        primary_key=Columns("key", ("id",), is_immediate=False),
        candidate=Columns("other", ("code",)),
    )
    finding = by_defect(table_findings([keyed], ServerState()))["replica_identity_deferrable"]
    assert finding.statements == ('ALTER TABLE "s"."t" REPLICA IDENTITY FULL',)
