"""What is remembered of the hosts that keep the agent's modules."""

from pathlib import Path

import pytest

from harness.parts.hosts import SentAgents, bootstrap

DIGEST = "d" * 64
COPY = f"/home/o'neill/.local/ein Blättchen/files/{DIGEST}"


@pytest.fixture(autouse=True)
def _digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the digest of the agent's modules, which takes long to make."""
    monkeypatch.setattr(bootstrap, "digest", lambda: DIGEST)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def test_later_launches_know_what_was_remembered(home: Path) -> None:
    first = SentAgents(str(home))
    key = first.key("h1", "port 22")
    assert first.path(key) == ""
    first.remember(key, COPY)
    assert (home / "sent-agents").stat().st_mode & 0o777 == 0o600
    second = SentAgents(str(home))
    assert second.path(key) == first.path(key) == COPY
    assert second.path(second.key("h1", "port 2222")) == second.path(second.key("h2", "")) == ""
    assert second.forget(key)
    assert not second.forget(key)
    assert SentAgents(str(home)).path(key) == ""


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", DIGEST, f"/two\nlines/{DIGEST}", f"/\udce4/{DIGEST}",
     f"/{'long/' * 1000}{DIGEST}"],
)  # fmt: skip
def test_a_host_cannot_name_another_file(home: Path, path: str) -> None:
    agents = SentAgents(str(home))
    agents.remember("key", path)
    assert agents.path("key") == ""
    assert not (home / "sent-agents").exists()


@pytest.mark.parametrize("damage", [b"\xff\x00 \n\n /\n", b"key", b"key \nkey", b" " * 3_000_000])
def test_a_damaged_file_only_costs_time(home: Path, damage: bytes) -> None:
    (home / "sent-agents").write_bytes(damage)
    agents = SentAgents(str(home))
    assert agents.path("key") == ""
    agents.remember("other", COPY)
    assert agents.path("other") == COPY


def test_a_folder_that_others_can_write_to_is_not_trusted(home: Path) -> None:
    agents = SentAgents(str(home))
    agents.remember("key", COPY)
    home.chmod(0o777)
    late = SentAgents(str(home))
    assert late.path("key") == ""
    late.remember("other", COPY)
    assert COPY not in (home / "sent-agents").read_text().splitlines()[1:]


def test_no_folder_and_a_link_in_its_place_are_left_alone(home: Path) -> None:
    agents = SentAgents(str(home / "missing"))
    agents.remember("key", COPY)
    assert agents.path("key") == COPY
    assert not (home / "missing").exists()
    (home / "sent-agents").symlink_to(home / "target")
    SentAgents(str(home)).remember("key", COPY)
    assert not (home / "target").exists()
