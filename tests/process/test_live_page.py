"""`distrun report --serve`: who gets the page, what it may do, and how it ends."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import socket
import subprocess

from harness.command import Distrun
from harness.waiting import wait_until


class Page:
    """A page that is served, and the command that serves it."""

    def __init__(self, distrun: Distrun, *args: str) -> None:
        command = ("report", "--serve", *args)
        self.process: subprocess.Popen[str] = distrun.start(
            *command, stdout=-1, stderr=-1, text=True
        )
        assert self.process.stdout is not None
        url = self.process.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32,}/)\n", url)
        assert found is not None, url
        self.port, self.path = int(found[1]), found[2]

    def ask(self, path: str = "", method: str = "GET", **headers: str) -> tuple[int, str]:
        """Ask as a browser does; `path` follows the token, or begins with a slash."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        client.request(method, path if path[:1] == "/" else self.path + path, headers=headers)
        answer = client.getresponse()
        text = answer.read().decode()
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        client.close()
        return answer.status, text

    def post(self, action: str) -> tuple[int, str]:
        return self.ask(action, "POST", Origin=f"http://127.0.0.1:{self.port}")

    def end(self) -> str:
        """End it with Ctrl-C; returns what it has printed on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, told = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return str(told)


def test_only_those_who_know_the_address_get_it_until_the_end_and_beyond(distrun: Distrun) -> None:
    job = distrun.detached("echo begun; exec sleep 600", workers=1)
    page = Page(distrun)
    here = f"127.0.0.1:{page.port}"
    status, text = page.ask()
    assert status == 200
    assert f"<title>{job}: running</title>" in text
    for host in ("localhost:9", f"[::1]:{page.port}", "127.0.0.1"):  # of `ssh -L`, too
        assert page.ask(Host=host)[0] == 200
    token = page.path.strip("/")
    for wrong in ("/", f"/{token}", f"/{token[:-1]}/", f"/x{token}/", "../", "stop", "../jobs"):
        status, text = page.ask(wrong)
        assert status == 404, wrong
        assert token not in text
        assert job not in text
    for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1.evil.example", "", "[::1"):
        assert page.ask(Host=host)[0] == 403, host
        assert page.ask("stop", "POST", Host=host, Origin=f"http://{host}")[0] in (403, 404), host
    for origin in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}):
        assert page.ask("stacks", "POST", Host=here, **origin)[0] == 403, origin
    assert page.post("stop")[0] == 404, "without --allow-stop"
    for sent, code in ((b"\x16\x03\xff", 400), (b"DELETE /", 501), (b"GET /\xc3\xa9/", 404)):
        with socket.create_connection(("127.0.0.1", page.port)) as stranger:
            stranger.sendall(sent + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"%d" % code in stranger.recv(1000)
    for code, word, args in (
        (69, str(page.port), ["--serve", "--port", str(page.port)]),
        (2, "no file", ["--serve", "-o", "page.html"]),
        (2, "--serve", ["--allow-stop"]),
        (2, "worker:7", ["--serve", "-t", "worker:7"]),
    ):
        done = distrun("report", *args)
        assert (done.returncode, done.stdout) == (code, ""), args
        assert word in done.stderr, args
    assert page.end().splitlines() == [
        f"distrun: this address shows job {job} until Ctrl-C; whoever knows it sees the page"
    ]
    assert distrun.status(job)["state"] == "running"

    page = Page(distrun, "--allow-stop", job)
    assert page.post("stop") == (200, "the job is stopping")
    wait_until(lambda: f"<title>{job}: stopped</title>" in page.ask()[1], timeout=30)
    assert "distrun report" in page.ask()[1], "who has stopped it"
    assert page.post("stop") == (200, "the job has ended")
    status, text = page.post("stacks")
    assert (status, "has ended" in text) == (503, True)
    shutil.rmtree(distrun.home / "jobs" / job)
    wait_until(lambda: f"<title>{job}: stopped</title>" not in page.ask()[1], timeout=30)
    assert page.process.poll() is None
    assert "Traceback" not in page.end()
