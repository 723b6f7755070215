"""A loop whose time a test moves."""

from distrun.agent.loop import Loop


class SimulatedLoop(Loop):
    """Waits for nothing: its time is `time`."""

    def __init__(self) -> None:
        self.time = 0.0
        super().__init__(lambda: self.time)

    @property
    def next_call(self) -> float | None:
        handle = self._next()
        return None if handle is None else handle.when

    @property
    def has_descriptors(self) -> bool:
        return bool(self._selector.get_map())

    def call_next(self) -> bool:
        """Move the time to the next call, and make it. Returns whether there is one."""
        due = self.next_call
        if due is not None:
            self.time = max(self.time, due)
            self.turn(0.0)
        return due is not None

    def run(self, seconds: float) -> int:
        end, turns = self.time + seconds, 0
        while True:
            turns += self.turn(0.0)
            due = self.next_call
            if due is None or due > end:
                self.time = end
                return turns
            turns += self.call_next()
