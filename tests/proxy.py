"""A proxy in front of an S3 server, which cuts connections before or after a request is served."""

from __future__ import annotations

import socket
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from attrs import evolve, frozen

from tests.s3_servers import S3Server

TIMEOUT = 30


@frozen
class Cut:
    """Which request is to meet with a cut connection, and when."""

    method: str
    part_of_path: str
    is_served: bool
    is_headless: bool = False
    """Whether the server gets the head of the request, and never its body."""

    def hits(self, method: str, path: str) -> bool:
        return method == self.method and self.part_of_path in path


class Proxy:
    """Forwards everything, but for the requests that a test wants cut.

    `requests` holds the method and the path of everything that was asked.
    """

    def __init__(self, server: S3Server) -> None:
        self.requests: list[tuple[str, str]] = []
        self._cuts: list[Cut] = []
        self._lock = threading.Lock()
        self._backend = urlsplit(server.endpoint)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.server = evolve(server, endpoint=f"http://127.0.0.1:{self._http.server_port}")
        self._thread = threading.Thread(target=self._http.serve_forever, name="proxy", daemon=True)
        self._thread.start()

    def drop_answer(self, method: str = "PUT", part_of_path: str = "") -> None:
        """Serve the next such request, and cut the connection instead of answering."""
        self._cuts.append(Cut(method, part_of_path, is_served=True))

    def drop_request(self, method: str = "PUT", part_of_path: str = "") -> None:
        """Cut the connection at the next such request, unserved."""
        self._cuts.append(Cut(method, part_of_path, is_served=False))

    def drop_body(self, method: str = "PUT", part_of_path: str = "") -> None:
        """Pass the head of the next such request on, and then die, as a killed sender does."""
        self._cuts.append(Cut(method, part_of_path, is_served=False, is_headless=True))

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def take_cut(self, method: str, path: str) -> Cut | None:
        """Note a request; return the cut that it meets with."""
        with self._lock:
            self.requests.append((method, path))
            cut = next((cut for cut in self._cuts if cut.hits(method, path)), None)
            if cut:
                self._cuts.remove(cut)
            return cut

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Have the server behind serve a request."""
        backend = HTTPConnection(str(self._backend.hostname), self._backend.port, timeout=TIMEOUT)
        try:
            backend.request(method, path, body, headers)
            answer = backend.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            backend.close()

    def forward_head(self, method: str, path: str, headers: dict[str, str]) -> None:
        """Send the server behind the head of a request, and close the connection."""
        address = (str(self._backend.hostname), int(self._backend.port or 80))
        with socket.create_connection(address, TIMEOUT) as backend:
            lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
            backend.sendall("\r\n".join([*lines, "", ""]).encode())
            backend.shutdown(socket.SHUT_WR)
            while backend.recv(4096):  # until the server has done with it
                pass

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        return type("Handler", (ProxyHandler,), {"proxy": self})


class ProxyHandler(BaseHTTPRequestHandler):
    proxy: ClassVar[Proxy]
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        cut = self.proxy.take_cut(self.command, self.path)
        if cut is None or cut.is_served:
            answer = self.proxy.forward(self.command, self.path, dict(self.headers), body)
            if cut is None:
                self.relay(*answer)
        elif cut.is_headless:
            self.proxy.forward_head(self.command, self.path, dict(self.headers))
        self.close_connection = self.close_connection or cut is not None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve  # noqa: N815 -- names of http.server

    def relay(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        hop_by_hop = ("connection", "transfer-encoding", "content-length", "keep-alive")
        for name, value in headers:
            if name.lower() not in hop_by_hop:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
