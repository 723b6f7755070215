"""Receives the program's files from the link, and reports the result."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Optional, Union

from distrun.agent.files.blob_cache import MOST_BYTES, BlobCache
from distrun.agent.files.staged_tree import RefusedError, StagedTree
from distrun.agent.protocol import file_messages

if TYPE_CHECKING:
    from distrun.agent.agent_dir import AgentDir
    from distrun.agent.link import Link


class FileReceiver:
    """One job's files in the agent's folder.

    Long work is cut into slices (:meth:`work`), or sends heartbeats in between.
    """

    def __init__(self, agent_dir: AgentDir, link: Link, most_cached: int = MOST_BYTES) -> None:
        self._dir = agent_dir
        self._link = link
        cache = agent_dir.cache_path
        self._cache = None if cache is None else BlobCache(os.fsencode(cache), most_cached)
        self._tree: Optional[StagedTree] = None
        self._has_requested = False
        """Whether the missing files have been requested on this link."""
        self._has_reported = False
        """Whether the result has been reported."""

    @property
    def has_work(self) -> bool:
        """Whether :meth:`work` must be called without waiting for anything."""
        return self._tree is not None and self._tree.has_work

    def execute(self, order: Union[file_messages.FileList, file_messages.FileData]) -> None:
        if isinstance(order, file_messages.FileList) and self._tree is None:
            send_heartbeat = self._link.send_heartbeat_if_due
            self._tree = StagedTree(self._dir.files_path, self._cache, send_heartbeat)
        if self._tree is not None and not self._has_reported:
            try:
                if isinstance(order, file_messages.FileList):
                    self._tree.add_list(order)
                else:
                    self._tree.write(order)
            except RefusedError as error:
                self._refuse(self._tree, error)
        if isinstance(order, file_messages.FileData):
            self._link.send(file_messages.FileDataReceived(len(order.data)))
            self._link.send_heartbeat_if_due()

    def work(self) -> None:
        """Continue for a short time."""
        if self._tree is None or self._has_reported:
            return
        try:
            self._tree.work()
        except RefusedError as error:
            self._refuse(self._tree, error)
            return
        missing = self._tree.missing
        if self._link.is_up and missing is not None and not self._has_requested:
            self._has_requested = True
            self._link.send(file_messages.FilesRequested(*missing))
        if self._tree.is_complete:
            self._has_reported = True
            self._link.report(file_messages.FilesReady(time.time()))

    def _refuse(self, tree: StagedTree, error: RefusedError) -> None:
        self._has_reported = True
        tree.discard()
        self._link.report(file_messages.FilesRefused(error.cause, time.time()))

    def pause(self) -> None:
        """The link is lost: request the missing files again on the next one."""
        self._has_requested = False

    def close(self) -> bool:
        """Remove the files once the job has ended, and preserve those that its tasks wrote.

        Returns whether the agent's folder contains nothing that must be preserved.
        """
        tree, self._tree = self._tree, None
        if tree is None:
            return True
        count, size = tree.remove()
        preserved = ""
        if count:
            preserved = self._dir.files_path
            with contextlib.suppress(OSError):  # a full disk may have no room for another folder
                preserved = self._dir.preserve(preserved)
            self._link.report(file_messages.FilesPreserved(preserved, count, size, time.time()))
        tree.remove_list()  # last: who finds it after this agent's death does the same again
        if self._cache is not None:
            self._cache.trim(set(tree.digests), self._link.send_heartbeat_if_due)
        return not preserved.startswith(os.path.join(self._dir.path, ""))
