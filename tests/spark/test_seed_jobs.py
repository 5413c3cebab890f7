# SPDX-License-Identifier: Apache-2.0
"""The jobs that the vendors' documents describe, from their own sample messages to tables.

Messages come late, twice and in any order; what the tables hold then is written by hand.
"""

import copy
import json
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, Final

import lake_tables
from dts_records import character, integer, record
from pyspark.sql import DataFrame, SparkSession

from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake.interface import Marker

GOLDEN: Final = Path(__file__).resolve().parents[1] / "golden"
Told = tuple[str | None, str | bytes]


def sample(case: str, part: str = "value") -> Any:
    """Return a sample message of a document, parsed."""
    return json.loads((GOLDEN / case / part).read_text())


def dts(operation: str, position: str, number: int, *notes: str) -> Told:
    """Return a record of DTS Avro (seed 000); the notes are those of the row before and after."""
    images = [[integer(number, 8), character(note.encode())] for note in notes]
    value = record(
        operation=operation,
        sourcePosition=position,
        tags={"pk_uk_info": '{"PRIMARY":["id"]}'},
        fields=[{"name": "id", "dataTypeNumber": 8}, {"name": "note", "dataTypeNumber": 253}],
        beforeImages=None if operation in {"INIT", "INSERT"} else images[0],
        afterImages=None if operation == "DELETE" else images[-1],
    )
    return None, value


def cdl(op: str, lsn: int, data: Any = None, before: Any = None) -> Told:
    """Return a message of CDL JSON 1.0 (seed 001): the row's key is in ``unique``."""
    told = copy.deepcopy(sample("cdl-json/cdl-1.0/insert"))
    rest = {"time1": None, "decimalNum": None}
    payload = told["payload"]
    payload["OPERATION"] = op
    payload["transaction"]["properties"][0]["value"] = lsn
    payload["data"] = data and data | rest
    payload["before"] = before and before | rest
    payload["unique"] = {"id": (data or before)["id"]}
    return None, json.dumps(told)


def cdl_2(op: str, lsn: int, after: Any = None, before: Any = None) -> Told:
    """Return a message of CDL Debezium JSON 2.0 (seed 001)."""
    told = copy.deepcopy(sample("cdl-debezium-json/documentation-2024/insert"))
    rest = {"time1": None, "decimalNum": None}
    payload = told["payload"]
    payload["op"], payload["source"]["lsn"] = op, lsn
    payload["source"]["table"] = "ct_2"
    payload["after"] = after and after | rest
    payload["before"] = before and before | rest
    payload["unique"] = {"id": (after or before)["id"]}
    return None, json.dumps(told)


def lindorm(case: str, time_ms: int, number: str) -> Told:
    """Return a message of Lindorm (seed 002)."""
    told = sample(f"lindorm-json/documentation-2024/{case}")
    payload = told["payload"]
    payload["source"]["ts_ms"] = time_ms
    for image in ("before", "after"):
        if payload[image] is not None:
            payload[image]["id"] = number
    return None, json.dumps(told)


def blob(op: str, sequence: str, row: Any, image: str = "after") -> Told:
    """Return a message of DataHub's BLOB topics (seed 003)."""
    told = sample("datahub-blob/dataworks-0.0.1/insert")
    told["schema"]["primaryKey"] = ["id"]
    payload = told["payload"]
    payload["op"], payload["sequenceId"] = op, sequence
    del payload["after"]
    payload[image] = {"dataColumn": row}
    return None, json.dumps(told)


def arcion(case: str) -> Told:
    """Return a message of Arcion (seed 004), as it stands there."""
    folder = f"arcion-json/documentation-5.7/{case}"
    return json.dumps(sample(folder, "key")), json.dumps(sample(folder))


def person(number: int, name: str, comment: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "comment": comment}


JOBS: Final[dict[str, tuple[str, TableId, list[Told], dict[Any, dict[str, Any]]]]] = {
    # "data migrated or synchronized": rows of the full load are older than all changes
    "000": (
        "dts-avro",
        TableId("shop", None, "orders"),
        [
            dts("INIT", "0@0", 1, "full"),
            dts("INIT", "0@0", 2, "full"),
            dts("INIT", "900@9", 3, "full"),
            dts("UPDATE", "200@1", 1, "full", "new"),
            dts("DELETE", "300@1", 2, "full"),
            dts("INSERT", "400@1", 4, "new"),
        ],
        {1: {"note": "new"}, 3: {"note": "full"}, 4: {"note": "new"}},
    ),
    # CDL into a lake with `unique` as record key
    "001": (
        "cdl-json",
        TableId(None, "public", "ct_pg2hudi"),
        [
            cdl("INSERT", 100, {"id": 34, "count1": 13}),
            cdl("UPDATE", 108, {"id": 34, "count1": 14}, {"id": 34, "count1": 13}),
            cdl("INSERT", 116, {"id": 35, "count1": 1}),
            cdl("DELETE", 124, None, {"id": 35, "count1": 1}),
        ],
        {34: {"count1": 14}},
    ),
    "001, version 2.0": (
        "cdl-debezium-json",
        TableId("cdl", "public", "ct_2"),
        [
            cdl_2("c", 100, {"id": 34, "count1": 13}),
            cdl_2("u", 108, {"id": 34, "count1": 14}, {"id": 34, "count1": 13}),
            cdl_2("c", 116, {"id": 35, "count1": 1}),
            cdl_2("d", 124, None, {"id": 35, "count1": 1}),
        ],
        {34: {"count1": 14}},
    ),
    # a column that is not there was deleted, and is NULL
    "002": (
        "lindorm-json",
        TableId("ld-xxxx", "default", "customers"),
        [
            lindorm("insert", 1000, "1004"),
            lindorm("column_deletion", 2000, "1004"),
            lindorm("insert", 1000, "1005"),
            lindorm("row_deletion", 3000, "1005"),
        ],
        {"1004": {"first_name": "Anne Marie", "last_name": None}},
    ),
    # the full load has the sequence -1, increments are newer
    "003": (
        "datahub-blob",
        TableId("example_db", None, "example_table_pk"),
        [
            blob("INSERT", "-1", person(1, "joe", "full")),
            blob("INSERT", "-1", person(2, "ann", "full")),
            blob("UPDATE_BEFOR", "1605339516000000005", person(1, "joe", "full"), "before"),
            blob("UPDATE_AFTER", "1605339516000000005", person(1, "joe", "com1")),
            blob("DELETE", "1605339516000000006", person(2, "ann", "full"), "before"),
            blob("INSERT", "1605339516000000007", person(3, "eve")),
        ],
        {1: {"name": "joe", "comment": "com1"}, 3: {"name": "eve", "comment": None}},
    ),
    # the snapshot, and what happened meanwhile
    "004": (
        "arcion-json",
        TableId("tpch", None, "region"),
        [arcion(case) for case in ("snapshot_insert", "insert", "update", "delete")],
        {
            3: {
                "r_name": "EUROPE",
                "r_comment": "ly final courts cajole furiously final excuse",
            },
            10: {"r_name": "Test_nation", "r_comment": "ReplicationWorks"},
        },
    ),
}
KEYS: Final = {"004": "r_regionkey"}


def told(spark: SparkSession, number: int, messages: list[Told], job: str) -> DataFrame:
    rows = [
        (
            key and key.encode(),
            value if isinstance(value, bytes) else value.encode(),
            job,
            0,
            offset,
        )
        for offset, (key, value) in enumerate(messages, start=100 * number)
    ]
    ddl = "key binary, value binary, topic string, partition int, offset bigint"
    keys = {"customers": ("id",)} if job == "002" else None
    options = {"id_column": "id"} if False else {}
    return decode(spark.createDataFrame(rows, ddl), JOBS[job][0], keys=keys, options=options)


def test_the_documents_jobs_end_as_the_documents_say(spark: SparkSession, lake: str) -> None:
    chance = Random(5)
    for number in range(2):
        batch = []
        for job, (_, _, messages, _) in JOBS.items():
            come = [*messages, *chance.sample(messages, 2)]
            chance.shuffle(come)
            batch.append(told(spark, number, come, job))
        applier = Applier(spark, lake, table_format=Path(lake).name)
        report = applier.apply(reduce(DataFrame.unionByName, batch), Marker("seeds", "q", number))
        assert report.quarantined == {}
    for job, (_, table, _, expected) in JOBS.items():
        key = KEYS.get(job, "id")
        rows = {row[key]: row for row in lake_tables.read(spark, lake, table, (key,)).rows.values()}
        names = next(iter(expected.values())).keys()
        shown = {value: {name: row[name] for name in names} for value, row in rows.items()}
        assert shown == expected, job
