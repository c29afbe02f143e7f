# SPDX-License-Identifier: Apache-2.0
"""`--persist` writes the server's file, keeps what people wrote, and never leaves a file that a start would refuse."""

from __future__ import annotations

import json
import os
import stat

import pytest
from knobbed import answer, differences, refused, run, set_knob

TEXT = """# The server of the third floor.
{everything}
# Asked for by the training team:
  # (they wait long)
log: {{level: info}}   # quiet
checkpoints:
    keep: 2    # two is enough
    # seconds
    interval_seconds: 600
"""


@pytest.fixture
def written(make_daemon):
    """A daemon whose file people have written."""
    daemon = make_daemon()
    path = daemon.folder / "embtierd.yaml"
    lines = "\n".join(f"{section}: {json.dumps(values)}" for section, values in daemon.config.items())
    path.write_text(TEXT.format(everything=lines))
    path.chmod(0o640)
    daemon.start()
    return daemon, path


def lines_of(path) -> list[str]:
    return path.read_text().splitlines()


def changed_lines(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    assert len(before) == len(after)
    return [(old, new) for old, new in zip(before, after) if old != new]


def test_only_the_value_changes_in_the_file(written):
    daemon, path = written
    before = lines_of(path)
    done = set_knob(daemon, "checkpoints.keep", "7", "--persist")
    assert done == {"name": "checkpoints.keep", "old": "2", "asked": "7", "value": "7", "applied": True, "file": str(path)}
    after = lines_of(path)
    assert changed_lines(before, after) == [("    keep: 2    # two is enough", "    keep: 7    # two is enough")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert differences(daemon) == {}
    assert answer(daemon, "knob", "get", "checkpoints.keep")["source"] == "file"
    text = run(daemon, "knob", "set", "log.level", "warn", "--persist").stdout
    assert text == f"log.level: info -> warn\nwritten into {path}\n"
    assert changed_lines(after, lines_of(path)) == [("log: {level: info}   # quiet", "log: {level: warn}   # quiet")]
    set_knob(daemon, "endurance.rated_years", "7", "--persist")  # its section is not there
    assert lines_of(path)[-2:] == ["endurance:", "  rated_years: 7"]
    set_knob(daemon, "checkpoints.transfer_idle_seconds", "9", "--persist")
    assert "    transfer_idle_seconds: 9" in lines_of(path)
    assert run(daemon, "config", "check", str(path)).returncode == 0
    assert os.listdir(daemon.folder) == [name for name in os.listdir(daemon.folder) if not name.endswith(".partial")]
    daemon.stop()
    daemon.start()  # with this file
    assert answer(daemon, "knob", "get", "checkpoints.keep")["value"] == "7"
    assert differences(daemon) == {}
    daemon.stop()


def test_null_gives_a_knob_its_default_back(written):
    daemon, path = written
    assert set_knob(daemon, "socket.max_user_sessions", "50")["value"] == "50"
    done = set_knob(daemon, "socket.max_user_sessions", "null")
    assert done["value"] != "50" and done["applied"]  # users share by a rule
    set_knob(daemon, "checkpoints.max_user_checkpoints", "3")
    assert differences(daemon)["checkpoints.max_user_checkpoints"][0] == "3"
    set_knob(daemon, "checkpoints.max_user_checkpoints", "null")
    assert "checkpoints.max_user_checkpoints" not in differences(daemon)  # as in the file, which lacks it
    assert set_knob(daemon, "log.level", "null", "--persist")["value"] == "info"
    assert "log: {level: null}   # quiet" in lines_of(path)
    set_knob(daemon, "rocksdb.options", "null", "--persist")
    text = path.read_text()
    assert "options: null" in text or '"options": null' in text, text
    assert run(daemon, "config", "check", str(path)).returncode == 0


def test_a_knob_that_needs_a_restart_waits_in_the_file(written):
    daemon, path = written
    done = answer(daemon, "knob", "set", "rocksdb.bloom_bits_per_key", "12", "--persist")
    assert done == {"name": "rocksdb.bloom_bits_per_key", "old": "10", "asked": "12", "value": "10", "applied": False, "file": str(path)}
    assert differences(daemon) == {"rocksdb.bloom_bits_per_key": ("10", "12")}
    text = run(daemon, "knob", "set", "cache.tiers[0].name", "fast tier", "--persist")
    assert text.returncode == 1  # a name has no blank
    text = run(daemon, "knob", "set", "cache.tiers[0].name", "fast", "--persist").stdout
    assert text.startswith("cache.tiers[0].name: dram now; fast from the next start on\n")
    daemon.stop()
    daemon.start()
    assert answer(daemon, "knob", "get", "rocksdb.bloom_bits_per_key")["value"] == "12"
    assert answer(daemon, "knob", "get", "cache.tiers[0].name")["value"] == "fast"
    daemon.stop()


def test_a_file_that_a_start_would_refuse_is_not_written(written):
    daemon, path = written
    before = path.read_text()
    for words, part in (
        (("lanes.count", "60"), "lanes.count: 60 lanes, but"),
        (("tls.handshake_threads", "0"), "1 to 64"),
        (("data.shards_per_directory", "9"), "shard"),  # only embtierd knows the store
        (("access.file", str(path.parent / "none.yaml")), "no client sets it"),
        (("rpc.insecure", "yes"), "no client sets it"),
        (("data.directories[0]", "/elsewhere"), "no client sets it"),
        (("rocksdb.options", "no_such_option=1"), "no_such_option"),
    ):
        error = refused(daemon, "knob", "set", *words, "--persist")
        assert part in error and "/proc/self/fd" not in error, (words, error)
        assert path.read_text() == before
    path.write_text(before + "lanes: {count: 1}\n")  # twice: somebody else's mistake
    assert "embtierd.yaml" in refused(daemon, "knob", "set", "log.level", "debug", "--persist")
    assert answer(daemon, "knob", "get", "log.level")["value"] == "info"


def test_a_file_that_may_not_be_written_stays(written):
    daemon, path = written
    path.chmod(0o444)
    assert "is read-only for the server" in refused(daemon, "knob", "set", "log.level", "debug", "--persist")
    assert answer(daemon, "knob", "get", "log.level")["value"] == "info"
    path.unlink()
    assert str(path) in refused(daemon, "knob", "set", "log.level", "debug", "--persist")
    assert not path.exists()


def test_a_symbolic_link_stays_one(written):
    daemon, path = written
    real = path.rename(path.parent / "real.yaml")
    path.symlink_to("real.yaml")
    set_knob(daemon, "log.level", "debug", "--persist")
    assert path.is_symlink() and "log: {level: debug}   # quiet" in lines_of(real)
