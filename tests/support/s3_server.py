"""A local object store that speaks S3, for tests: moto in a thread of this process."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

BUCKET = "captures"


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Yield the environment of programs that use the store; it has the bucket :data:`BUCKET`."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT")):
            pass
        yield {
            "AWS_ACCESS_KEY_ID": "an-id",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.stop()
