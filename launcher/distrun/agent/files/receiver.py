"""Takes the program's files from the link, a moment at a time, and says how it went."""

from __future__ import annotations

import os
import time
from typing import Callable, Optional, Union

from distrun.agent import agent_dir
from distrun.agent.files import staged_tree
from distrun.agent.files.blob_cache import Store
from distrun.agent.protocol import Order, Report
from distrun.agent.protocol.channel import Channel
from distrun.agent.protocol.file_messages import (
    FileData,
    FileDataReceived,
    FileList,
    FilesPreserved,
    FilesReady,
    FilesRefused,
    FilesRequested,
)


class FileReceiver:
    """One job's files in an agent's folder.

    Args:
        report: to the supervisor, of what is to reach it whatever becomes of the link.
        beat: called often in what takes long and is not done a moment at a time.
    """

    def __init__(
        self, folder: str, report: Callable[[Report], None], beat: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._report = report
        self._beat = beat
        store = agent_dir.store_of(folder)
        self._store = None if store is None else Store(os.fsencode(store))
        self._copy: Optional[staged_tree.Copy] = None
        self._has_said_wanted = False
        self._is_over = False
        """Whether it has been reported how it went."""

    @property
    def has_work(self) -> bool:
        """Whether :meth:`work` is to be called without waiting for anything."""
        return self._copy is not None and self._copy.has_work

    def obey(self, order: Union[FileList, FileData], channel: Channel[Order, Report]) -> None:
        """Take a part of the list, or of a file."""
        if isinstance(order, FileList):
            self._expect(order)
        else:
            self._take(order)
            channel.send(FileDataReceived(len(order.data)))
            self._beat()

    def _expect(self, part: FileList) -> None:
        if self._copy is None:
            self._copy = staged_tree.Copy(agent_dir.copy_of(self._folder), self._store, self._beat)
        if not self._is_over:
            try:
                self._copy.expect(part)
            except staged_tree.RefusedError as error:
                self._refuse(error)

    def _take(self, part: FileData) -> None:
        if self._copy is not None and not self._is_over:
            try:
                self._copy.take(part)
            except staged_tree.RefusedError as error:
                self._refuse(error)

    def work(self, channel: Optional[Channel[Order, Report]]) -> None:
        """Go on for a moment; `channel` is the link, where there is one."""
        if self._copy is None or self._is_over:
            return
        try:
            self._copy.work()
        except staged_tree.RefusedError as error:
            self._refuse(error)
            return
        wanted = self._copy.wanted
        if channel is not None and wanted is not None and not self._has_said_wanted:
            self._has_said_wanted = True
            channel.send(FilesRequested(*wanted))
        if self._copy.is_whole:
            self._is_over = True
            self._report(FilesReady(time.time()))

    def _refuse(self, error: staged_tree.RefusedError) -> None:
        self._is_over = True
        if self._copy is not None:
            self._copy.give_up()
        self._report(FilesRefused(error.cause, time.time()))

    def pause(self) -> None:
        """The link is gone; on the next one it is said anew what is wanted."""
        self._has_said_wanted = False

    def leave(self) -> bool:
        """Once nothing of the job runs any more: remove the copy, keep what tasks made in it.

        Returns whether nothing in the agent's folder is to be kept.
        """
        copy, self._copy = self._copy, None
        if copy is None:
            return True
        count, size = copy.remove()
        kept = self._kept() if count else ""
        if count:
            self._report(FilesPreserved(kept, count, size, time.time()))
        if self._store is not None:
            self._store.trim(set(copy.digests), self._beat)
        return not kept.startswith(os.path.join(self._folder, ""))

    def _kept(self) -> str:
        """Where the rest of the copy is now; a full disk may have no room for another folder."""
        place = agent_dir.copy_of(self._folder)
        try:
            return agent_dir.keep(self._folder, place)
        except OSError:
            return place
