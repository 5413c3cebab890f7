# SPDX-License-Identifier: Apache-2.0
"""Messages of Connect's JSON converter, as its Avro converter writes them.

The schema follows ``AvroData.fromConnectSchema`` of confluentinc/schema-registry; fastavro writes
the datum. Names that Avro does not allow are adjusted as Debezium's ``avro_unicode`` mode does.
"""

import base64
import io
import json
import re
from typing import Any

import fastavro
from fastavro.schema import parse_schema

Json = dict[str, Any]

_TYPES = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long",
    "float": "float", "float32": "float", "double": "double", "float64": "double",
    "bytes": "bytes", "string": "string",
}  # fmt: skip
_CONNECT = "org.apache.kafka.connect.data."
_LOGICAL = {"Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}


def unicode_name(name: str) -> str:
    """Return a name as Debezium's `avro_unicode` writes it."""
    return re.sub(r"[^A-Za-z0-9]", lambda found: f"_u{ord(found[0]):04x}", name)


class Avro:
    """An Avro schema of a Connect schema, and its data."""

    def __init__(self, schema: Json, *, adjust: bool = False) -> None:
        self._name = unicode_name if adjust else str
        self._defined: dict[str, Any] = {}
        self._unnamed = 0
        self.schema = self._nullable(schema)
        self._parsed = parse_schema(json.loads(json.dumps(self.schema)), _write_hint=False)
        self._connect = schema

    @property
    def text(self) -> str:
        return json.dumps(self.schema)

    def datum(self, payload: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._parsed, self._value(self._connect, payload))
        return out.getvalue()

    def _nullable(self, schema: Json) -> Any:
        avro = self._type(schema)
        if not schema.get("optional"):
            return avro
        return [avro, "null"] if schema.get("default") is not None else ["null", avro]

    def _type(self, schema: Json) -> Any:
        kind = schema["type"]
        avro: Json
        match kind:
            case "struct":
                return self._record(schema)
            case "array":
                avro = {"type": "array", "items": self._nullable(schema["items"])}
            case "map" if schema["keys"]["type"] == "string" and not schema["keys"].get("optional"):
                avro = {"type": "map", "values": self._nullable(schema["values"])}
            case "map":
                entry = {
                    "type": "record",
                    "name": "MapEntry",
                    "namespace": "io.confluent.connect.avro",
                    "connect.internal.type": "MapEntry",
                    "fields": [
                        {"name": name, "type": self._nullable(schema[f"{name}s"])}
                        for name in ("key", "value")
                    ],
                }
                avro = {"type": "array", "items": entry}
            case _:
                avro = {"type": _TYPES[kind]}
                if kind in {"int8", "int16"}:
                    avro["connect.type"] = kind
        return self._with_properties(avro, schema)

    def _record(self, schema: Json) -> Any:
        label = schema.get("name")
        if label is None:
            self._unnamed += 1
            full = "io.confluent.connect.avro.ConnectDefault" + (
                "" if self._unnamed == 1 else str(self._unnamed)
            )
        else:
            full = ".".join(map(self._name, label.split(".")))
        content = [{**f, "default": None} for f in schema["fields"]], schema.get("version")
        if full in self._defined:
            assert self._defined[full] == content, full  # Avro cannot define a name twice
            return full
        self._defined[full] = content
        namespace, _, name = full.rpartition(".")
        avro: Json = {"type": "record", "name": name, "fields": []}
        if namespace:
            avro["namespace"] = namespace
        for field in schema["fields"]:
            member = {"name": self._name(field["field"]), "type": self._nullable(field)}
            if field.get("default") is not None:
                member["default"] = self._default(field, field["default"])
            elif field.get("optional"):
                member["default"] = None
            avro["fields"].append(member)
        return self._with_properties(avro, schema)

    def _with_properties(self, avro: Json, schema: Json) -> Any:
        label = schema.get("name")
        parameters = schema.get("parameters")
        for name in ("doc", "version", "parameters", "name"):
            if schema.get(name) is not None:
                avro[f"connect.{name}"] = schema[name]
        if schema.get("default") is not None and avro["type"] != "record":
            avro["connect.default"] = self._default(schema, schema["default"])
        if label == _CONNECT + "Decimal":
            scale = int(parameters["scale"])
            precision = int(parameters.get("connect.decimal.precision", 64))
            if 0 <= scale <= precision:
                avro |= {"logicalType": "decimal", "precision": precision, "scale": scale}
        elif label is not None and label.startswith(_CONNECT):
            avro["logicalType"] = _LOGICAL[label.removeprefix(_CONNECT)]
        for name, text in (parameters or {}).items():
            avro.setdefault(name, text)
        return avro if len(avro) > 1 else avro["type"]

    def _default(self, schema: Json, value: Any) -> Any:
        if schema["type"] == "bytes":
            return base64.b64decode(value).decode("latin-1")
        return value

    def _value(self, schema: Json, value: Any) -> Any:
        if value is None:
            return None
        match schema["type"]:
            case "struct":
                return {
                    self._name(field["field"]): self._value(field, value[field["field"]])
                    for field in schema["fields"]
                }
            case "array":
                return [self._value(schema["items"], item) for item in value]
            case "map" if isinstance(value, dict):
                return {key: self._value(schema["values"], item) for key, item in value.items()}
            case "map":
                keys, values = schema["keys"], schema["values"]
                return [
                    {"key": self._value(keys, key), "value": self._value(values, item)}
                    for key, item in value
                ]
            case "bytes":
                return base64.b64decode(value)
            case "float" | "double" | "float32" | "float64":
                return float(value)
        return value


def schema_and_payload(data: bytes) -> tuple[Json, Any]:
    """Return the two parts of a message with a schema."""
    wrapped = json.loads(data)
    return wrapped["schema"], wrapped["payload"]
