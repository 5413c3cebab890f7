"""The source blocks of Debezium and its placeholder, for tests of its messages."""

PLACEHOLDER = "__debezium_unavailable_value"
PG = {
    "version": "3.6.1.Final", "connector": "postgresql", "name": "dbz", "ts_ms": 1, "snapshot":
    "false", "db": "shop", "sequence": '["11","22"]', "ts_us": 1000, "ts_ns": 1000000, "schema":
    "public", "table": "t", "txId": 5, "lsn": 22, "xmin": None, "origin": None, "origin_lsn": None,
}  # fmt: skip
MYSQL = {
    "version": "3.5.0.Final", "connector": "mysql", "name": "dbz", "ts_ms": 1, "snapshot": "false",
    "db": "shop", "sequence": None, "ts_us": 1000, "ts_ns": 1000000, "table": "t", "server_id": 1,
    "gtid": None, "file": "binlog.000002", "pos": 4, "row": 0, "thread": None, "query": None,
}  # fmt: skip
