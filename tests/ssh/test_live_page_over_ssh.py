"""`distrun report --serve` on a host that a browser reaches by `ssh -L`."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from urllib.parse import urlsplit

from harness.command import Distrun
from harness.network import Hosts, Network
from harness.waiting import wait_until


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_page_of_a_job_through_a_tunnel(
    hosts: Hosts, network: Network, distrun: Distrun
) -> None:
    (host,) = hosts(1)
    spec = distrun.write_spec("echo begun; exec sleep 600", workers=1)
    ssh = ["ssh", "-F", str(network.ssh_config)]
    names = ("DISTRUN_HOME", "PYTHONPATH", "PATH")
    settings = [f"{name}={os.environ[name]}" for name in names if name in os.environ]

    def there(*words: str) -> list[str]:
        return [*ssh, host.name, shlex.join(["env", *settings, *distrun.argv, *words])]

    def ask(port: int, path: str, **headers: str) -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as page:
            page.request("GET", path, headers=headers)
            answer = page.getresponse()
            return answer.status, answer.read().decode()

    subprocess.run(there("launch", "-d", str(spec)), check=True, capture_output=True)
    host.is_changed = True  # what serves the page is ended with it
    with running(there("report", "--serve")) as served:
        assert served.stdout is not None
        url = urlsplit(served.stdout.readline().strip())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        way = f"127.0.0.1:{port}:127.0.0.1:{url.port}"
        with running([*ssh, "-N", "-o", "ExitOnForwardFailure=yes", "-L", way, host.name]):

            def answers() -> bool:
                with contextlib.suppress(ConnectionError):
                    return ask(port, url.path)[0] == 200
                return False

            wait_until(answers, timeout=30)
            # What a browser sends as Host is this end of the tunnel.
            for name in ("127.0.0.1", "localhost"):
                status, page = ask(port, url.path, Host=f"{name}:{port}")
                assert (status, ": running</title>" in page) == (200, True)
                assert "begun" in page
            assert ask(port, url.path, Host=f"evil.example:{port}")[0] == 403
            assert ask(port, "/", Host=f"localhost:{port}")[0] == 404
    subprocess.run(there("kill"), check=True, capture_output=True)
