# SPDX-License-Identifier: Apache-2.0
"""Registries that speak HTTP: Confluent's interface, and Apicurio's own.

Confluent's interface (https://docs.confluent.io/platform/current/schema-registry/develop/api.html)
is that of Karapace, Redpanda and Apicurio's ``/apis/ccompat/v7``, too. An address that ends in
``/apis/registry/v2`` or ``/v3`` is Apicurio's own interface, which separates global ids from
content ids.
"""

import base64
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from changelane.errors import DecodeError, UnreachableError
from changelane.formats.contract.schema_registry import (
    BEARER,
    IdKind,
    Location,
    RegisteredSchema,
    SchemaId,
)
from changelane.reason_codes import ReasonCode

_APICURIO: Final = re.compile(r"/apis/registry/v[23]$")
_TIMEOUT_SECONDS: Final = 10.0
_PAUSES_SECONDS: Final = (0.2, 1.0, 0.0)
"""The pause after each attempt. A missing schema is requested twice, because it may be new."""
_MISSING_SECONDS: Final = 30.0
"""For so long the registry is not asked again for an id that it does not have."""
_MAX_BYTES: Final = 16 << 20
_MAX_REFERENCES: Final = 100
_POSTED: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_REDIRECTS: Final = "redirects, which is not followed: set registry to the other address"
_REASONS: Final = {
    **dict.fromkeys((301, 302, 303, 307, 308), _REDIRECTS),
    401: "rejects the credentials: set registry_auth",
    403: "rejects the credentials: set registry_auth",
    409: "rejects a schema that is not compatible with the subject's earlier ones",
}
_WRONG_PATH: Final = " (HTTP status 404): check its address and path"
_AVRO: Final = "AVRO"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class _Reference(msgspec.Struct):
    subject: str
    version: int


class _ApicurioReference(msgspec.Struct, rename="camel"):
    artifact_id: str
    version: str
    group_id: str | None = None


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str | None = None  # noqa: N815 - the name on the wire
    references: list[_Reference] | None = None


class _Registered(msgspec.Struct):
    id: Annotated[int, msgspec.Meta(ge=1, lt=1 << 32)]  # messages have four bytes for it


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the credentials to another server."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Return no request."""


class HttpRegistry:
    """A registry behind an HTTP address."""

    def __init__(self, location: Location) -> None:
        self._address = location.address.rstrip("/")
        self._is_apicurio = _APICURIO.search(self._address) is not None
        self._has_content_paths = self._is_apicurio and self._address.endswith("/v3")
        parts = urlsplit(self._address)
        self._name = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json, */*"}
        if location.auth:
            self._headers["Authorization"] = authorization(location.auth)
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._missing: dict[SchemaId, float] = {}

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return a schema."""
        if schema_id.kind is IdKind.GLUE:
            reason = "schemas of AWS Glue are read from a folder only: set registry to one"
            raise DecodeError(reason, code=ReasonCode.UNKNOWN_SCHEMA)
        asked_at = self._missing.get(schema_id)
        if asked_at is None or time.monotonic() - asked_at > _MISSING_SECONDS:
            path = self._path_of(schema_id)
            body = self._get(path)
            if body is not None:
                self._missing.pop(schema_id, None)
                return self._registered(path, body)
            self._missing[schema_id] = time.monotonic()
        reason = f"the schema registry at {self._name} has no schema {schema_id.text}"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_SCHEMA)

    def register(self, subject: str, text: str) -> int:
        """Return the id of an Avro schema, which is registered if the subject does not have it."""
        schema_id = self._posted_id(f"{_path_of_subject(subject)}/versions", subject, text)
        if schema_id is None:
            raise self._no_registry(_WRONG_PATH)
        return schema_id

    def registered_id(self, subject: str, text: str) -> int | None:
        """Return the id of an Avro schema; ``None`` if the subject does not have it."""
        return self._posted_id(_path_of_subject(subject), subject, text)

    def _posted_id(self, path: str, subject: str, text: str) -> int | None:
        """Return the id in the answer to a posted schema; ``None`` = the path does not exist."""
        if self._is_apicurio:
            raise UnreachableError(
                "schemas are registered through Confluent's interface only: set registry to an "
                "address that ends in /apis/ccompat/v7"
            )
        body = self._get(path, msgspec.json.encode({"schema": text}), subject)
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=_Registered).id
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._no_registry() from None

    def _path_of(self, schema_id: SchemaId) -> str:
        if self._is_apicurio:
            is_global = schema_id.kind is IdKind.GLOBAL_ID
            return f"/ids/{'globalIds' if is_global else 'contentIds'}/{schema_id.text}"
        return f"/schemas/{'guids' if schema_id.kind is IdKind.GUID else 'ids'}/{schema_id.text}"

    def _registered(self, path: str, body: bytes) -> RegisteredSchema:
        text, kind, references = self._parts(path, body)
        texts: dict[str, str] = {}
        self._add_texts(references, texts)
        return RegisteredSchema(text, kind, tuple(texts.values()))

    def _parts(self, path: str, body: bytes) -> tuple[str, str, list[str]]:
        """Return the text and the type of a schema, and the paths of those that it refers to."""
        if self._is_apicurio:
            return body.decode("utf-8", "replace"), _AVRO, self._apicurio_references(path)
        answer = self._answer(body)
        references = [
            f"{_path_of_subject(reference.subject)}/versions/{reference.version}"
            for reference in answer.references or ()
        ]
        return answer.schema, answer.schemaType or _AVRO, references

    def _apicurio_references(self, path: str) -> list[str]:
        """Return the paths of the schemas that the schema at a path refers to."""
        body = self._get(f"{path}/references")
        if body is None:  # a version of Apicurio without references
            return []
        try:
            references = msgspec.json.decode(body, type=list[_ApicurioReference])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._no_registry() from None
        return [
            "/".join(
                (
                    f"/groups/{quote(reference.group_id or 'default', safe='')}",
                    f"artifacts/{quote(reference.artifact_id, safe='')}",
                    f"versions/{quote(reference.version, safe='')}",
                )
            )
            for reference in references
        ]

    def _add_texts(self, paths: Sequence[str], texts: dict[str, str]) -> None:
        """Add the schemas at some paths, each after those that it refers to."""
        for path in paths:
            if path in texts:
                continue
            if len(texts) >= _MAX_REFERENCES:
                reason = f"a schema refers to more than {_MAX_REFERENCES} others"
                raise DecodeError(reason, code=ReasonCode.WRONG_SCHEMA)
            body = self._get(f"{path}/content" if self._has_content_paths else path)
            if body is None:
                reason = "the schema registry lacks a schema to which another one refers"
                raise DecodeError(reason, code=ReasonCode.UNKNOWN_SCHEMA)
            text, _, references = self._parts(path, body)
            texts[path] = ""  # a circle of references ends here
            self._add_texts(references, texts)
            del texts[path]
            texts[path] = text

    def _answer(self, body: bytes) -> _Answer:
        try:
            return msgspec.json.decode(body, type=_Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._no_registry() from None

    def _no_registry(self, cause: str = "") -> UnreachableError:
        return UnreachableError(f"{self._name} does not answer as a schema registry{cause}")

    def _get(self, path: str, content: bytes | None = None, subject: str = "") -> bytes | None:
        """Return the body of an answer; ``None`` if the registry does not have it.

        Args:
            path: The path after the address.
            content: The JSON to post; ``None`` for a request without content.
            subject: The subject of a posted schema, for errors.

        Raises:
            UnreachableError: The registry does not answer, or rejects the request.
        """
        headers = self._headers if content is None else {**self._headers, **_POSTED}
        request = urllib.request.Request(self._address + path, content, headers)  # noqa: S310
        why, was_missing = "", False
        for pause in _PAUSES_SECONDS:
            try:
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                    body: bytes = response.read(_MAX_BYTES + 1)
            except urllib.error.HTTPError as error:
                why, is_missing = f"HTTP status {error.code}", error.code == _NOT_FOUND
                # Apicurio's own interface has paths that some of its versions lack
                is_other = is_missing and not self._is_apicurio and not _is_json(error)
                error.close()
                if is_other:
                    raise self._no_registry(_WRONG_PATH) from None
                if is_missing and was_missing:
                    return None
                was_missing = is_missing
                if not is_missing and error.code < _SERVER_ERROR and error.code != _TOO_MANY:
                    reason = _REASONS.get(error.code, "rejects the request")
                    msg = f"the schema registry at {self._name} {reason} ({why})"
                    raise UnreachableError(msg + _advice(subject, error.code)) from None
            except (OSError, HTTPException, UnicodeError) as error:  # a host may be no name
                cause = error.reason if isinstance(error, urllib.error.URLError) else error
                why = type(cause).__name__
            else:
                if len(body) > _MAX_BYTES:
                    raise UnreachableError(f"the answer of {self._name} is too long")
                return body
            time.sleep(pause)
        raise UnreachableError(f"the schema registry at {self._name} does not answer ({why})")


def _is_json(error: urllib.error.HTTPError) -> bool:
    """Return whether an error is one of a registry, and not of a proxy or of another server."""
    try:
        return error.read(1 << 10).lstrip().startswith(b"{")
    except (OSError, HTTPException):
        return False


def _path_of_subject(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _advice(subject: str, status: int) -> str:
    """Return the end of the error for a schema that the registry rejects; empty for others."""
    if not subject or (status in _REASONS and status != _CONFLICT):
        return ""
    path = f"/config/{quote(subject, safe='')}"
    advice = f": PUT {path} sets the compatibility of its schemas" if status == _CONFLICT else ""
    return f" for the subject {subject}{advice}"


def authorization(auth: str) -> str:
    """Return the value of the header ``Authorization``."""
    if auth.lower().startswith(BEARER):
        return auth
    return "Basic " + base64.b64encode(auth.encode()).decode()


def open_location(location: Location) -> HttpRegistry:
    """Return the registry at an address."""
    return HttpRegistry(location)
