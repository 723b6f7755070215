"""Finds tasks whose servers do not have the addresses that the tasks were given.

TF_GRPC_REUSE_PORT lets several servers listen on one port. Tasks whose program sets a wrong
TF_CONFIG then wait for each other without end, and print nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from distrun.agent.protocol import Cause, Code
from distrun.plan import TaskPlan

Place = tuple[str, int | str]
"""A host and a port, or an address; without a host, the address is the same on all hosts."""


class ClusterCheck:
    """Compares where the tasks of a job serve with the addresses that they were given.

    Ports are compared, not names of machines: `localhost:2222` and `127.0.0.1:2222` are the same.
    With `program.tf_config: mine`, only two tasks that start servers at the same address on one
    host are a mismatch.

    `find_setter` returns where the program sets TF_CONFIG, as `train.py:6` or '', and whether every
    run does so; None: that is not known yet, and :meth:`check_unsure` is called once it is.
    """

    def __init__(
        self, tasks: Iterable[TaskPlan], find_setter: Callable[[], tuple[str, bool] | None]
    ) -> None:
        self._tasks = {task.name: task for task in tasks if task.address}
        self._find_setter = find_setter
        self._ports: dict[str, list[int]] = {}
        self._served: dict[str, set[str]] = {}
        self._at: defaultdict[Place, set[str]] = defaultdict(set)
        self._given: defaultdict[Place, set[str]] = defaultdict(set)
        for task in self._tasks.values():
            if not task.owns_tf_config:
                address, port = task.address or "", _port(task.address)
                for place in ((task.host, port), ("", port), ("", address)):
                    self._given[place].add(task.name)
        self._unsure: set[str] = set()
        """The tasks that wait for what `find_setter` returns."""
        self.suspect: Cause | None = None
        """A task that serves at a place of its own. The cluster may yet be one that works."""

    def forget(self, name: str) -> None:
        """Forget where an attempt of a task served: it has ended."""
        for place in self._places(name):
            self._at[place].discard(name)
        for known in (self._ports, self._served):
            known.pop(name, None)
        self._unsure.discard(name)
        if self.suspect is not None and self.suspect.task == name:
            self.suspect = None

    def record(self, name: str, ports: list[int]) -> Cause | None:
        """Note the ports that a task listens on. Returns a mismatch that this shows."""
        if name not in self._tasks or self._ports.get(name) == ports:
            return None
        self._note(name, ports, self._served.get(name, set()))
        return self._find(name)

    def record_served(self, name: str, addresses: set[str]) -> Cause | None:
        """Note the addresses at which a task has started servers. Returns a mismatch."""
        served = self._served.get(name, set())
        if name not in self._tasks or served >= addresses:
            return None
        self._note(name, self._ports.get(name, []), served | addresses)
        return self._find(name) if self._ports[name] else None

    def check_unsure(self) -> Cause | None:
        """Return a mismatch of the tasks that waited for where the program sets TF_CONFIG."""
        names, self._unsure = sorted(self._unsure), set()
        return next(filter(None, map(self._find, names)), None)

    def _note(self, name: str, ports: list[int], served: set[str]) -> None:
        for place in self._places(name):
            self._at[place].discard(name)
        self._ports[name] = ports
        if served:
            self._served[name] = served
        for place in self._places(name):
            self._at[place].add(name)

    def _places(self, name: str) -> list[Place]:
        task, served = self._tasks.get(name), self._served.get(name, set())
        if task is None:
            return []
        if task.owns_tf_config:
            return [(task.host, address) for address in served]
        ports = self._ports.get(name, [])
        return [*(("", address) for address in served), *((task.host, port) for port in ports)]

    def _is_at_own(self, name: str) -> bool:
        task, port = self._tasks[name], _port(self._tasks[name].address)
        served = map(_port, self._served.get(name, ()))
        return not task.owns_tf_config and (port in self._ports.get(name, ()) or port in served)

    def _find(self, name: str) -> Cause | None:
        places = self._places(name)
        given = [(place, self._given.get(place, set())) for place in places]
        foreign = [(place, owners) for place, owners in given if owners and name not in owners]
        if not places or (not foreign and self._is_at_own(name)):
            return None
        if (setter := self._find_setter()) is None:
            self._unsure.add(name)
            return None
        if foreign:
            return self._cause(name, *foreign[0])
        is_server = name in self._served
        is_sure = is_server or setter[1]
        for place in places:
            others = {each for each in self._at[place] - {name} if not self._is_at_own(each)}
            if others and is_sure:
                return self._cause(name, place, others)
        is_own_affair = self._tasks[name].owns_tf_config
        for place in () if is_own_affair else places:
            owners = self._given.get(("", place[1]), set())  # of another host
            if owners and is_sure:
                return self._cause(name, place, owners)
        if not is_own_affair and (is_server or setter[0]):
            self.suspect = self._cause(name, places[0], set())
        return None

    def _cause(self, name: str, place: Place, others: set[str]) -> Cause:
        where = place[1]
        port = where if isinstance(where, int) else _port(where)
        served = (each for each in self._served.get(name, ()) if _port(each) == port)
        setter, is_certain = self._find_setter() or ("", False)
        # ParameterServerStrategy starts a server at the chief's address wherever it is created.
        is_chief = not is_certain and "chief:0" in others and "ps:0" in self._tasks
        return Cause(
            Code.SERVED_ELSEWHERE,
            task=name,
            text=next(served, ""),
            port=port,
            name=self._tasks[name].address or "",
            tasks=tuple(sorted(others)),
            path="" if is_chief else setter,
            expected="chief:0" if is_chief else "",
        )


def _port(address: str | None) -> int:
    """The port of an address; 0 if it has none."""
    port = (address or "").rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else 0
