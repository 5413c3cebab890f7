# SPDX-License-Identifier: Apache-2.0
"""Java key stores of certificate files, which all connectors but PostgreSQL's need for TLS.

The stores are PKCS #12 files of the engine's folder. Each run of the capture process writes them
anew, with a password of its own that is stored nowhere.
"""

import base64
import binascii
import os
import re
from pathlib import Path
from typing import Any, Final

import jpype

from changelane.capture.connectors import ConnectorOptions, key_store_properties
from changelane.errors import ConfigError

_PRIVATE_KEY: Final = re.compile(
    rb"-----BEGIN PRIVATE KEY-----(.+?)-----END PRIVATE KEY-----", re.DOTALL
)
_ALGORITHMS: Final = ("RSA", "EC", "Ed25519")


def write_key_stores(options: ConnectorOptions, folder: Path, password: str) -> dict[str, str]:
    """Write the key stores that a connector needs; return its properties.

    Args:
        options: The captured database.
        folder: The folder of the stores.
        password: The password of the stores.

    Raises:
        ConfigError: A file is not what its option says.
    """
    if options.product == "postgres":
        return {}
    properties: dict[str, str] = {}
    if options.sslrootcert:
        path = folder / "truststore.p12"
        store = _new_store()
        for number, certificate in enumerate(_certificates(options.sslrootcert, "sslrootcert")):
            store.setCertificateEntry(f"authority-{number}", certificate)
        _write(store, path, password)
        names = key_store_properties(options.product, "truststore")
        properties |= dict(zip(names, (str(path), password), strict=True))
    if options.sslcert:
        path = folder / "keystore.p12"
        store = _new_store()
        chain = _certificates(options.sslcert, "sslcert")
        store.setKeyEntry("client", _private_key(options.sslkey), _characters(password), chain)
        _write(store, path, password)
        names = key_store_properties(options.product, "keystore")
        properties |= dict(zip(names, (str(path), password), strict=True))
    return properties


def _new_store() -> Any:
    store = jpype.JClass("java.security.KeyStore").getInstance("PKCS12")
    store.load(None, None)
    return store


def _write(store: Any, path: Path, password: str) -> None:
    content = jpype.JClass("java.io.ByteArrayOutputStream")()
    store.store(content, _characters(password))
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(bytes(content.toByteArray()))


def _characters(text: str) -> Any:
    return jpype.JString(text).toCharArray()


def _bytes_of(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the file of {option} cannot be read: {error.strerror}") from None


def _certificates(path: str, option: str) -> Any:
    """Return the certificates of a file, as a Java array.

    Raises:
        ConfigError: The file has none.
    """
    stream = jpype.JClass("java.io.ByteArrayInputStream")(_bytes_of(path, option))
    factory = jpype.JClass("java.security.cert.CertificateFactory").getInstance("X.509")
    try:
        certificates = list(factory.generateCertificates(stream))
    except jpype.JException:
        certificates = []
    if not certificates:
        raise ConfigError(f"the file of {option} has no certificate in the form PEM")
    return jpype.JArray(jpype.JClass("java.security.cert.Certificate"))(certificates)


def _private_key(path: str) -> Any:
    """Return the private key of a file.

    Raises:
        ConfigError: The file has none that Java can read.
    """
    if (found := _PRIVATE_KEY.search(_bytes_of(path, "sslkey"))) is not None:
        try:
            encoded = base64.b64decode(found[1])
        except binascii.Error:
            encoded = b""
        specification = jpype.JClass("java.security.spec.PKCS8EncodedKeySpec")(
            jpype.JArray(jpype.JByte)(encoded)
        )
        for algorithm in _ALGORITHMS:
            factory = jpype.JClass("java.security.KeyFactory").getInstance(algorithm)
            try:
                return factory.generatePrivate(specification)
            except jpype.JException:
                continue
    raise ConfigError(
        "the file of sslkey has no key that Java can read: write it as PKCS #8 without a password "
        "(openssl pkcs8 -topk8 -nodes -in KEY -out NEW)"
    )
