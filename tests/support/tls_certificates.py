# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers of tests, made by ``openssl``."""

import subprocess
from pathlib import Path
from typing import NamedTuple


class ServerCertificate(NamedTuple):
    """The files of a server's TLS, and the root that a client trusts."""

    key: Path
    certificate: Path
    root: Path


def create_server_certificate(folder: Path, host: str = "127.0.0.1") -> ServerCertificate:
    """Create an authority and a certificate for an address and ``localhost``, valid for a day."""
    root_key, root = folder / "root.key", folder / "root.crt"
    key, request, certificate = (folder / f"server.{end}" for end in ("key", "csr", "crt"))
    extensions = folder / "server.ext"
    extensions.write_text(f"subjectAltName=IP:{host},DNS:localhost\n")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(
        *("req", "-x509", *curve, "-keyout", root_key, "-out", root, "-days", "1"),
        *("-subj", "/CN=test authority"),
    )
    _openssl("req", *curve, "-keyout", key, "-out", request, "-subj", f"/CN={host}")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", root, "-CAkey", root_key, "-CAcreateserial"),
        *("-out", certificate, "-days", "1", "-extfile", extensions),
    )
    key.chmod(0o600)
    return ServerCertificate(key, certificate, root)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
