# SPDX-License-Identifier: Apache-2.0
"""`embtier endurance` knows the devices beneath the server's files, what was written to each, and remembers it over restarts. Tests
of devices need files on a disk; others write to it too, so the server's part is at most the device's."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, Daemon
from histories import write_summed

DIM = 128
ROWS = 20_000
DAY_S = 86_400
HELPER = CLI.parent / "embtier-nvme-health"


def endurance(daemon, *arguments: str) -> dict:
    command = [CLI, "-s", daemon.socket, "-t", "0", "-o", "json", "endurance", *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def endurance_text(daemon) -> str:
    command = [CLI, "-s", daemon.socket, "-t", "0", "endurance"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def disk_beneath(path: Path) -> str:
    """The name of the only disk beneath @path; else the test is skipped."""
    number = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not block.exists():
        pytest.skip(f"no disk is known beneath {path}")
    block = block.resolve()
    if (block / "partition").exists():
        block = block.parent
    if any((block / "slaves").glob("*")):
        pytest.skip(f"{path} lies on several devices, or on one that hides another")
    return block.name


def device_bytes(name: str) -> int:
    return 512 * int(Path(f"/sys/class/block/{name}/stat").read_text().split()[6])


def update(daemon, turns: int, name: str = "rows", durability: str = "replay") -> None:
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.create_table(name, DIM, durability=durability, if_not_exists=True)
        for turn in range(turns):
            for first in range(0, ROWS, 5000):
                table.set(np.arange(first, first + 5000), np.full((5000, DIM), turn + 1))
        server.checkpoint()  # all rows are in files that were synced


def wait_for(look, condition):
    """The server samples once a second. Returns the first of its answers that meets @condition."""
    deadline = time.monotonic() + 60
    while not condition(answer := look()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def change_history(path: Path, change) -> None:
    """Rewrites a history with another content, and its checksum."""
    content = json.loads(path.read_text())
    for item in content["histories"]:
        change(item["history"])
    write_summed(path, content)


def make_older(daemon, seconds: int) -> None:
    """Has the histories begin some time before."""

    def change(history: dict) -> None:
        history["since_ms"] -= seconds * 1000

    daemon.stop()
    change_history(history_file(daemon), change)
    daemon.start()


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon({"cache": {"tiers": [Daemon.dram()]}, "checkpoints": {"interval_seconds": 0}})
    daemon.start()
    return daemon


def history_file(daemon) -> Path:
    return Path(daemon.config["data"]["directories"][0]) / "endurance.json"


def test_a_device_has_at_least_the_bytes_that_the_server_wrote(daemon):
    name = disk_beneath(daemon.folder)
    update(daemon, 1)
    make_older(daemon, 2 * 3600)
    first = endurance(daemon)["devices"][0]
    before = device_bytes(name)
    update(daemon, 3)
    os.sync()
    after = device_bytes(name)
    devices = wait_for(
        lambda: endurance(daemon)["devices"],
        lambda devices: devices[0]["written_bytes"] - first["written_bytes"] >= 0.98 * (after - before),
    )
    assert [device["name"] for device in devices] == [name]
    device = devices[0]
    server = device["server_bytes"] - first["server_bytes"]
    written = device["written_bytes"] - first["written_bytes"]
    assert server > ROWS * DIM * 4
    assert device["written_bytes"] <= 1.02 * device_bytes(name)
    assert server <= 1.02 * written and device["counted"] is True
    assert device["others_bytes"] == max(device["written_bytes"] - device["server_bytes"], 0)
    assert device["capacity_bytes"] == 512 * int(Path(f"/sys/class/block/{name}/size").read_text())
    assert device["history_bytes"] >= device["written_bytes"]
    assert device["daily_bytes"]["hour"] > 0 and device["drive_writes_per_day"] == pytest.approx(
        device["daily_bytes"]["week"] / device["capacity_bytes"]
    )


def test_bytes_of_the_server_are_those_of_its_causes(daemon):
    update(daemon, 2)
    update(daemon, 1, "logged", "async")
    report = endurance(daemon)
    causes = report["written_bytes_by_cause"]
    assert causes["checkpoint"] > 0 and causes["flush"] > 0 and causes["log"] > 0 and causes["blob"] == 0
    assert "tier_file" not in causes
    wait_for(daemon.metrics, lambda metrics: metrics["server_history_bytes"] >= 0.98 * sum(causes.values()))
    deadline = time.monotonic() + 60
    while True:  # table files that are being made have no cause yet
        metrics = daemon.metrics()
        if metrics["server_history_bytes"] <= 1.02 * sum(metrics["store_written_bytes"].values()):
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_checkpoint_costs_the_copies_that_it_makes(daemon):
    update(daemon, 1, "logged", "async")
    before = endurance(daemon, "--interval", "0.1")["written_bytes_by_cause"]["checkpoint"]
    total = endurance(daemon)["written_bytes_by_cause"]["checkpoint"]
    assert before == 0 < total


def process_bytes(daemon) -> int:
    """Bytes that the process wrote, less those that it dropped before the system wrote them; else the test is skipped."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{daemon.pid}/io").read_text().splitlines())
    if int(fields["write_bytes"]) == 0:
        pytest.skip("this system does not count what a process writes")
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


@pytest.fixture
def tiered(make_daemon):
    """A daemon with a tier's file on the same disk as its data directory."""
    daemon = make_daemon()
    daemon.configure({"cache": {"tiers": [daemon.dram(), daemon.pmem(mib_per_lane=8)]}, "checkpoints": {"interval_seconds": 0}})
    daemon.start()
    return daemon


def wait_for_causes(daemon) -> dict:
    """Returns the report as soon as its causes are what the kernel counts for the process."""
    process_bytes(daemon)
    os.sync()  # what waits in the page cache has not been written
    return wait_for(
        lambda: endurance(daemon),
        lambda report: sum(report["written_bytes_by_cause"].values()) == pytest.approx(process_bytes(daemon), rel=0.02),
    )


def test_the_file_of_a_tier_costs_what_the_kernel_counts(tiered):
    name = disk_beneath(tiered.folder)
    update(tiered, 2)
    report = wait_for_causes(tiered)
    causes = report["written_bytes_by_cause"]
    assert causes["tier_file"] > 1 << 20
    assert report["devices"][0]["name"] == name
    assert report["devices"][0]["server_bytes"] >= causes["tier_file"]


def test_the_sum_is_what_the_device_counts_while_a_tier_grows_and_shrinks(tiered):
    """A tier that grew is dirty as a whole, and one that shrank drops pages that were never written. Other programs write to the
    disk too, so the lower side is held against the kernel's count of the process."""
    name = disk_beneath(tiered.folder)
    mib = int(tiered.config["cache"]["tiers"][1]["bytes"].removesuffix("MiB"))
    first = wait_for_causes(tiered)["devices"][0]  # pages that the start made dirty are written, and counted
    before = device_bytes(name)
    for turn in range(3):
        for value in (12 * mib, mib):
            command = [CLI, "-s", tiered.socket, "knob", "set", "cache.tiers[1].bytes", f"{value}MiB"]
            subprocess.run(command, check=True, capture_output=True)
        update(tiered, 1, f"rows{turn}")
    report = wait_for_causes(tiered)
    device = next(device for device in report["devices"] if device["name"] == name)
    after = device_bytes(name)
    server = device["server_bytes"] - first["server_bytes"]
    assert server <= 1.02 * (after - before)
    assert device["others_bytes"] >= 0
    assert device["server_bytes"] + device["others_bytes"] == pytest.approx(device["written_bytes"], rel=0.02)
    assert tiered.metrics()["server_history_bytes"] == pytest.approx(process_bytes(tiered), rel=0.02)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_history_outlives_the_server(daemon, end):
    update(daemon, 1)
    before = wait_for(lambda: endurance(daemon), lambda report: all(device["history_bytes"] > 0 for device in report["devices"]))
    if end == "kill":  # a save before that
        daemon.restart()
        daemon.kill()
    else:
        daemon.stop()
        closed = history_file(daemon).with_name("closed.json")  # the last file of a stop
        assert history_file(daemon).stat().st_mtime_ns >= closed.stat().st_mtime_ns
    daemon.start()
    after = endurance(daemon)
    assert after["history_seconds"] >= before["history_seconds"]
    assert daemon.metrics()["server_history_bytes"] >= ROWS * DIM * 4
    for device in before["devices"]:
        now = next(other for other in after["devices"] if other["name"] == device["name"])
        assert now["history_bytes"] >= device["history_bytes"] > 0
        assert now["written_bytes"] < now["history_bytes"]
    assert not daemon.logged("history of bytes written")


@pytest.mark.parametrize("damage", ["cut", "turned", "empty", "folder"])
def test_a_damaged_history_costs_nothing_else(daemon, damage):
    update(daemon, 1)
    daemon.stop()
    path = history_file(daemon)
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        turned = bytearray(content)
        turned[len(turned) // 2] ^= 1
        path.write_bytes({"cut": content[: len(content) // 2], "turned": bytes(turned), "empty": b""}[damage])
    daemon.start()
    (warning,) = daemon.logged("history of bytes written could not be read")
    assert warning["level"] == "warn" and warning["kept_as"] == f"{path}.damaged"
    assert Path(f"{path}.damaged").exists()
    assert daemon.metrics()["server_history_seconds"] < 3600
    daemon.restart()
    assert len(daemon.logged("history of bytes written could not be read")) == 1
    assert path.is_file()


def test_a_device_above_the_limit_is_told(daemon):
    name = disk_beneath(daemon.folder)
    daemon.stop()

    def write_much(history: dict) -> None:
        history["since_ms"] -= DAY_S * 1000
        history["hours"][(history["seen_ms"] // 3_600_000 - 5) % 168] = 10**15

    change_history(history_file(daemon), write_much)
    daemon.start()
    assert daemon.metrics()["device_max_dwpd_exceeded"] == {name: 0}  # there is no limit
    daemon.restart({"endurance": {"max_dwpd": 0.5}})
    (warning,) = daemon.logged("more writes a day than endurance.max_dwpd")
    assert warning["level"] == "warn" and warning["device"] == name and float(warning["dwpd"]) > 0.5
    assert daemon.metrics()["device_max_dwpd_exceeded"] == {name: 1}
    assert endurance(daemon)["devices"][0]["max_dwpd_exceeded"] is True
    assert "more drive writes a day than endurance.max_dwpd" in endurance_text(daemon)
    for value, exceeded in (("0", 0), ("0.25", 1)):  # while it serves
        subprocess.run([CLI, "-s", daemon.socket, "knob", "set", "endurance.max_dwpd", value], check=True, capture_output=True)
        wait_for(daemon.metrics, lambda metrics, exceeded=exceeded: metrics["device_max_dwpd_exceeded"] == {name: exceeded})
    assert endurance(daemon)["devices"][0]["max_dwpd_exceeded"] is True
    assert "more drive writes a day than endurance.max_dwpd" in endurance_text(daemon)


def test_the_life_left_is_that_of_the_rating(make_daemon):
    daemon = make_daemon({
        "cache": {"tiers": [Daemon.dram()]},
        "endurance": {"capacity_bytes": "1TB", "rated_written_bytes": "1000TB", "rated_years": 5},
    })  # fmt: skip
    daemon.start()
    update(daemon, 1)
    make_older(daemon, 2 * 3600)
    report = endurance(daemon)
    life = report["life"]
    if any(device["health"] for device in report["devices"]):
        pytest.skip("the drives count their own life")
    assert life["counted_by_drives"] is False
    assert life["left_bytes"] == 10**15 - life["written_bytes"]
    assert life["years"] == pytest.approx(life["left_bytes"] / report["daily_bytes"]["week"] / 365)
    if report["devices"]:
        assert report["life_device"] == report["devices"][0]["name"] and report["devices"][0]["life"] == life
    assert life["least_years"] <= life["years"] <= life["most_years"]
    if life["years"] < 1000:
        years = int(report["life_ends"][:4]) - time.gmtime().tm_year
        assert abs(years - life["years"]) <= 1
    text = endurance_text(daemon)
    assert "life left             at most " in text and "since the history began" in text


def test_people_are_told_what_to_do_without_health(daemon):
    disk_beneath(daemon.folder)
    for device in endurance(daemon)["devices"]:
        if device["health"] is None:
            assert f"{device['name']}: health is not known: {device['health_error']}\n" in endurance_text(daemon)
        else:
            assert device["health"]["device"] == device["name"] and device["health_error"] is None
    make_older(daemon, 2 * 3600)
    text = endurance_text(daemon)
    assert "life left             not known: it needs endurance.rated_written_bytes" in text or "drive's own count" in text


def test_seconds_of_history_say_nothing_about_a_day(daemon):
    update(daemon, 1)
    report = endurance(daemon)
    assert report["history_seconds"] < 3600
    assert set(report["daily_bytes"].values()) == {None} and report["life"]["years"] is None and report["life_ends"] is None
    assert report["written_bytes_per_day"] is None and report["drive_writes_per_day"] is None
    for device in report["devices"]:
        assert set(device["daily_bytes"].values()) == {None} and device["drive_writes_per_day"] is None
    metrics = daemon.metrics()
    assert not [name for name in metrics if "daily_bytes" in name] and "server_history_seconds" in metrics
    text = endurance_text(daemon)
    assert "written a day         not known yet: the server is up for less than an hour" in text
    assert "rates of the history  not known yet: rates need a history of an hour" in text
    assert "life left             not known yet: rates need a history of an hour" in text
    assert "last week" not in text and "DWPD: " not in text
    make_older(daemon, 3600)
    assert None not in endurance(daemon)["daily_bytes"].values()
    assert "server_daily_bytes" in daemon.metrics() and "in the last week" in endurance_text(daemon)


# ---- The helper ----


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "Usage: embtier-nvme-health DEVICE"),
        (["--version"], 2, "Usage:"),
        (["/dev/nvme0n1", "/dev/nvme1n1"], 2, "Usage:"),
        (["/dev/null"], 1, "/dev/null: 'null' is no NVMe drive; name one, such as /dev/nvme0n1"),
        (["/etc/passwd"], 1, "/etc/passwd: no device that /sys knows"),
        (["/dev/no/such/drive"], 1, "/dev/no/such/drive: No such file or directory"),
        (["/dev/\x1b[31m"], 1, "No such file"),
    ],
)
def test_the_helper_opens_nothing_but_drives(arguments, status, words):
    done = subprocess.run([HELPER, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == status and done.stdout == ""
    assert words in done.stderr and "\x1b" not in done.stderr


def test_the_helper_explains_itself():
    done = subprocess.run([HELPER, "--help"], check=True, capture_output=True, text=True)
    assert "CAP_SYS_ADMIN" in done.stdout and done.stderr == ""
