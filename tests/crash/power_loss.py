# SPDX-License-Identifier: Apache-2.0
"""Simulates the state in which a power loss may leave a folder. tests/faults/unsynced.c records the server's changes and syncs
there. After SIGKILL, lose_power() takes back a random part of the changes that were not synced:
* Files: each sector of 512 bytes is as it was at the last sync, as written since, or zero where there was nothing. The file ends
  anywhere between its old and its new end.
* Folders: the changes of entries since the last sync survive up to a random one; later ones are lost. Folders are independent of
  each other, and of the files."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512

WRITE, RESIZE, CREATE, MKDIR, UNLINK, RMDIR, RENAME, LINK, SYNC, FAILED, START = range(1, 12)
_HEAD = struct.Struct("=IIIIQQQQ")


@dataclass
class Record:
    kind: int
    inode: int
    at: int
    count: int
    size: int
    path: str
    other: str
    data: bytes


@dataclass(eq=False)
class Node:
    """A file or folder, with its changes since the last sync, each with its record's number."""

    is_folder: bool
    inode: int
    entries: dict[str, Node] = field(default_factory=dict)
    changes: list[tuple[int, object]] = field(default_factory=list)
    path: Path | None = None  # its present place
    content: bytes | None = None  # its bytes when it lost its last name


# One change of a name in a folder: the name, the node before, the node after.
Edit = tuple[str, "Node | None", "Node | None"]


@dataclass
class Losses:
    """The losses that lose_power() caused."""

    files: int = 0
    entries: int = 0


class Disk:
    """A folder of a server that runs with the fault library. All that is in it at the beginning is safe."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self.folder, self.journal = folder, journal
        folder.mkdir(exist_ok=True, parents=True)
        journal.mkdir(exist_ok=True)
        self._remember()

    def environment(self) -> dict[str, str]:
        return {"EMBTIER_FAULT_FOLDER": str(self.folder), "EMBTIER_FAULT_JOURNAL": str(self.journal)}

    def lose_power(self, rng: random.Random) -> Losses:
        """No process may have the folder open."""
        losses = Losses()
        last = self._replay()
        self._compare(last)
        for node in self._all_nodes():
            if node.is_folder and node.changes:
                losses.entries += _forget_entries(node, rng)
        after = self.folder.with_name(self.folder.name + ".after")
        self._build(after, self._root, {}, rng, losses)
        shutil.rmtree(self.folder)
        after.rename(self.folder)
        self._remember()
        return losses

    # ---- The journal ----

    def _remember(self) -> None:
        (self.journal / "journal").unlink(missing_ok=True)
        self._nodes: dict[int, Node] = {}
        self._root = self._scan(self.folder)

    def _scan(self, path: Path) -> Node:
        info = path.lstat()
        node = self._nodes.get(info.st_ino)
        if node is None:
            node = self._nodes[info.st_ino] = Node(path.is_dir(), info.st_ino)
            if node.is_folder:
                node.entries = {child.name: self._scan(child) for child in path.iterdir()}
        return node

    def _all_nodes(self) -> list[Node]:
        found: dict[int, Node] = {}

        def add(node: Node | None) -> None:
            if node is None or id(node) in found:
                return
            found[id(node)] = node
            for child in node.entries.values():
                add(child)
            if node.is_folder:
                for _, edits in node.changes:
                    for _, before, after in edits:
                        add(before)
                        add(after)

        add(self._root)
        return list(found.values())

    def _records(self) -> Iterator[Record]:
        path = self.journal / "journal"
        text = path.read_bytes() if path.exists() else b""
        at = 0
        while at + _HEAD.size <= len(text):
            kind, path_bytes, other_bytes, data_bytes, inode, offset, count, size = _HEAD.unpack_from(text, at)
            first = at + _HEAD.size
            ends = first + path_bytes, first + path_bytes + other_bytes
            at = ends[1] + data_bytes
            if at > len(text):
                return  # SIGKILL came during the write of this record
            yield Record(
                kind, inode, offset, count, size, text[first : ends[0]].decode(),
                text[ends[0] : ends[1]].decode(), text[ends[1] : at],
            )  # fmt: skip

    def _find(self, path: str) -> tuple[Node, str]:
        """The path's folder, and its name in there."""
        *folders, name = Path(path).relative_to(self.folder).parts
        node = self._root
        for folder in folders:
            node = node.entries[folder]
        return node, name

    def _replay(self) -> tuple[Node, int] | None:
        """Follows the journal. Returns the last change of entries: its folder and number."""
        records: list[Record] = []
        for record in self._records():
            if record.kind == FAILED:
                records[-1].kind = 0
            else:
                records.append(record)
        last = None
        base = 0
        for number, record in enumerate(records):
            if record.kind == START:
                base = number + 1
            elif record.kind == SYNC:
                if node := self._nodes.get(record.inode):
                    node.changes = [c for c in node.changes if c[0] >= base + record.count]
            elif record.kind in (WRITE, RESIZE):
                self._nodes[record.inode].changes.append((number, record))
            elif record.kind:
                last = self._change_entries(number, record), number
        return last

    def _change_entries(self, number: int, record: Record) -> Node:
        folder, name = self._find(record.path)
        node = folder.entries.get(name)
        edits: list[Edit] = []
        if record.kind in (CREATE, MKDIR):
            made = self._nodes[record.inode] = Node(record.kind == MKDIR, record.inode)
            edits = [(name, None, made)]
        elif record.kind in (UNLINK, RMDIR):
            assert node is not None
            if record.kind == UNLINK:
                node.content = record.data
            edits = [(name, node, None)]
        else:
            other_folder, other = self._find(record.other)
            replaced = other_folder.entries.get(other)
            edits = [(other, replaced, node)]
            if replaced and not replaced.is_folder:
                replaced.content = record.data
            if record.kind == RENAME:
                assert folder is other_folder, "power_loss.py knows renames within a folder only"
                edits.append((name, node, None))
            folder = other_folder
        _apply(folder, edits)
        folder.changes.append((number, edits))
        return folder

    def _compare(self, last: tuple[Node, int] | None) -> None:
        """Checks that the folder is as the journal says, except for the change that SIGKILL cut short. Notes each node's
        place."""
        differences = self._differences(self._root, self.folder)
        if differences and last is not None:
            folder, number = last
            if folder.changes and folder.changes[-1][0] == number:
                _, edits = folder.changes.pop()
                _undo(folder, edits)
                if not self._differences(self._root, self.folder):
                    return
                _apply(folder, edits)
                folder.changes.append((number, edits))
        assert len(differences) <= 1, f"the journal does not know of {differences}"
        for path in differences:
            folder, name = self._find(str(path))
            assert path.exists() and name not in folder.entries, f"the journal does not know of {path}"
            folder.entries[name] = node = Node(path.is_dir(), path.lstat().st_ino, path=path)
            folder.changes.append((number + 1 if last else 0, [(name, None, node)]))

    def _differences(self, node: Node, path: Path) -> list[Path]:
        node.path = path
        if not node.is_folder:
            return []
        there = {entry.name: entry.inode() for entry in os.scandir(path)}
        found = [path / name for name in {*node.entries, *there}
                 if name not in there or name not in node.entries
                 or there[name] != node.entries[name].inode]  # fmt: skip
        for name, child in node.entries.items():
            if path / name not in found:
                found += self._differences(child, path / name)
        return found

    # ---- The state after the loss ----

    def _build(self, path: Path, node: Node, made: dict[Node, Path], rng: random.Random, losses: Losses) -> None:
        if node.is_folder:
            path.mkdir(mode=0o700)
            for name in sorted(node.entries):
                self._build(path / name, node.entries[name], made, rng, losses)
        elif node in made:
            os.link(made[node], path)
        else:
            made[node] = path
            if node.changes or node.path is None:
                content = node.path.read_bytes() if node.path else node.content or b""
                left = _forget_bytes(content, [change for _, change in node.changes], rng)
                losses.files += left != content
                path.write_bytes(left)
                path.chmod(0o600)
            else:
                os.link(node.path, path)


def _apply(folder: Node, edits: list[Edit]) -> None:
    for name, _, after in edits:
        if after is None:
            folder.entries.pop(name, None)
        else:
            folder.entries[name] = after


def _undo(folder: Node, edits: list[Edit]) -> None:
    _apply(folder, [(name, after, before) for name, before, after in edits])


def _forget_entries(folder: Node, rng: random.Random) -> int:
    count = len(folder.changes)
    forgotten = rng.choice([0, count, rng.randint(0, count), rng.randint(0, min(count, 2))])
    for _ in range(forgotten):
        _undo(folder, folder.changes.pop()[1])
    return forgotten


def _before(content: bytes, changes: list[Record]) -> bytes:
    """The bytes at the last sync."""
    old = bytearray(content)
    for change in reversed(changes):
        if len(old) < change.at:  # SIGKILL came after this record, before the change itself
            old.extend(bytes(change.at - len(old)))
        if change.kind == RESIZE:
            old[change.at :] = change.data
        else:
            old[change.at : change.at + len(change.data)] = change.data
        del old[change.size :]
        old.extend(bytes(change.size - len(old)))
    return bytes(old)


def _forget_bytes(new: bytes, changes: list[Record], rng: random.Random) -> bytes:
    old = _before(new, changes)
    kind = rng.randrange(4)
    if kind == 0:
        return old
    if kind == 1:
        return new
    shorter, longer = sorted((len(old), len(new)))
    end = rng.choice([len(old), len(new), rng.randint(shorter, longer)])
    left = bytearray(new.ljust(longer, b"\0"))
    if kind == 3:
        padded = old.ljust(longer, b"\0")
        kept = rng.choice([0.1, 0.5, 0.9, 0.99])
        for at in range(0, longer, SECTOR):
            if rng.random() > kept:
                left[at : at + SECTOR] = padded[at : at + SECTOR]
    return bytes(left[:end])
