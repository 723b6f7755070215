"""Writes the images of the test cluster: `images.py BUSYBOX FOLDER`.

`local/pause:1` sleeps. `local/host:1` is empty: its pods mount what they need of this machine.
`local/tensorflow:1` is written for each cluster: see :class:`harness.kubernetes.Cluster`.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def write(
    path: Path, name: str, files: dict[str, bytes], command: list[str], programs: str = ""
) -> None:
    """Write an image archive, as `ctr images import` takes it. `programs`: begins its PATH."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for folder in ("bin", "dev", "etc", "lib", "lib64", "proc", "root", "sys", "tmp", "usr"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for each, content in files.items():
            _add(archive, each, content)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": [f"PATH={programs}/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer.getvalue())]},
    }
    written = json.dumps(config).encode()
    config_name = hashlib.sha256(written).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, config_name, written)
        _add(archive, "layer.tar", layer.getvalue())
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    busybox, folder = Path(sys.argv[1]), Path(sys.argv[2])
    sleep = ["/busybox", "sleep", "2147483647"]
    write(folder / "pause.tar", "local/pause:1", {"busybox": busybox.read_bytes()}, sleep)
    write(folder / "host.tar", "local/host:1", {}, [])
