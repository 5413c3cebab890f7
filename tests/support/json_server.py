# SPDX-License-Identifier: Apache-2.0
"""An HTTP server in this process that answers with JSON, and fails as a test wants."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class JsonServer:
    """Answers requests by :meth:`respond`; a context manager that serves meanwhile.

    Attributes:
        requests: The method and the path of each request.
        auth: The header that each request must have; empty = none.
        address: The address of the server.
    """

    unauthorized = b""
    """The body of an answer to a request without the header."""
    missing = b""
    """The body of an answer about something that does not exist."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.auth = ""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_PUT(self) -> None:
                self.do_POST()

            def _answer(self, body: Any) -> None:
                server.requests.append(f"{self.command} {self.path}")
                if server.auth and self.headers.get("Authorization") != server.auth:
                    status, content = 401, server.unauthorized
                elif failure := server.next_failure():
                    status, content = failure
                elif (answer := server.respond(self.command, self.path, body)) is None:
                    status, content = 404, server.missing
                else:
                    status, content = 200, json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status == 302:
                    self.send_header("Location", f"{server.address}/elsewhere")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def respond(self, method: str, path: str, body: Any) -> Any:
        """Return the answer to a request; ``None`` = there is no such thing."""
        raise NotImplementedError

    def next_failure(self) -> tuple[int, bytes] | None:
        """Return the status and the body of a failure instead of the next answer."""
        raise NotImplementedError
