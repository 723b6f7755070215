"""The live page: the report of a job on loopback, updated while a browser shows it."""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from distrun.errors import DistrunError, HostError
from distrun.job import control
from distrun.job.folder import JobFolder
from distrun.job.stop_order import order_of
from distrun.words.causes import error_words

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost", "::1")
"""Of this machine, as a browser may write them, also at the other end of `ssh -L`."""
_SHORTEST_REFRESH = 2.0
_LOAD = 1 / 75
"""The share of a core that refreshing may take at most: a larger page is refreshed less often."""
_MOST_CONNECTIONS = 32
_IDLE_SECONDS = 15.0
"""How long a connection may say nothing."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LivePage:
    """The page of one job, made again when it is asked for and old enough.

    Args:
        folder: the job's.
        make: makes the page; a browser asks again after so many seconds.
        take_stacks: returns where the tasks stand, as text. Raises DistrunError.
        may_stop: whether the job may be stopped from the page.
    """

    def __init__(
        self,
        folder: JobFolder,
        *,
        make: Callable[[float], str],
        take_stacks: Callable[[], str],
        may_stop: bool,
    ) -> None:
        self.actions: dict[str, Callable[[], str]] = {"stacks": take_stacks}
        if may_stop:
            self.actions["stop"] = lambda: control.stop(folder, order_of("distrun report"))
        self._make = make
        self._lock = threading.Lock()
        self._page, self._made_at, self._refresh = "", -1e9, _SHORTEST_REFRESH

    def page(self) -> str:
        """Return the page as HTML, not older than the time between two refreshes."""
        with self._lock:
            if time.monotonic() >= self._made_at + self._refresh * 0.9:
                used = time.thread_time()
                is_first = not self._page  # which imports what is needed, and reads all samples
                self._page = self._make(self._refresh)
                if not is_first:
                    used = time.thread_time() - used
                    self._refresh = max(_SHORTEST_REFRESH, used / _LOAD)
                self._made_at = time.monotonic()
            return self._page

    def act(self, name: str) -> str:
        """Do what a button of the page says, one at a time; returns what to show."""
        with self._lock:
            return self.actions[name]()


class PageServer(ThreadingHTTPServer):
    """Serves a page to those who know its token.

    Args:
        live: the page.
        port: on loopback; 0: any that is free.

    Raises:
        HostError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, live: LivePage, port: int) -> None:
        self.live = live
        self._open: dict[Any, None] = {}
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise HostError(
                f"port {port} of {ADDRESS} cannot be used: {error.strerror}",
                hint="leave out --port to take one that is free",
            ) from error

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Close the oldest connection if there are very many: each has a thread."""
        self._open[request] = None
        if len(self._open) > _MOST_CONNECTIONS:
            with contextlib.suppress(OSError):  # its thread ends it
                next(iter(self._open)).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = _IDLE_SECONDS
    server_version, sys_version = "distrun", ""

    def do_GET(self) -> None:
        self._answer(self.server.live.page if self._place() in ("", "/") else None, "text/html")

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        name = (self._place() or "").removeprefix("/")
        live = self.server.live
        # A browser says with each POST which site it is from.
        if self.headers.get("Origin") != f"http://{self.headers.get('Host')}":
            self._send(HTTPStatus.FORBIDDEN, "refused: another site has sent this request")
        else:
            self._answer((lambda: live.act(name)) if name in live.actions else None, "text/plain")

    def _place(self) -> str | None:
        """Return the part of the path that follows the token; None: the token is wrong."""
        token, slash, place = self.path.partition("?")[0][1:].partition("/")
        is_right = hmac.compare_digest(token.encode(), self.server.token.encode())
        return slash + place if is_right else None

    def _answer(self, make: Callable[[], str] | None, kind: str) -> None:
        host = self.headers.get("Host", "")
        with contextlib.suppress(ValueError):
            host = urlsplit(f"http://{host}").hostname or ""
        if host not in _NAMES:  # a site whose name was made to lead here
            self._send(HTTPStatus.FORBIDDEN, "refused: it is for localhost only")
        elif make is None:
            words = "not found: open the address that `distrun report --serve` has printed last"
            self._send(HTTPStatus.NOT_FOUND, words)
        elif self._place() == "":  # what the page asks for is below its address
            self._send(HTTPStatus.FOUND, "", location=f"/{self.server.token}/")
        else:
            try:
                self._send(HTTPStatus.OK, make(), kind)
            except (DistrunError, OSError) as error:
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, error_words(error))

    def _send(
        self, status: HTTPStatus, text: str, kind: str = "text/plain", location: str | None = None
    ) -> None:
        content = text.encode()
        headers = _HEADERS if location is None else {**_HEADERS, "Location": location}
        with contextlib.suppress(OSError):  # the browser has gone
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content if self.command != "HEAD" else b"")

    def log_message(self, *_: object) -> None:
        """Print nothing of requests: their paths have the token."""
