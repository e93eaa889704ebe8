"""Hosts on one machine: each has its own network, name, processes and address; a switch connects them.

A host is a set of Linux namespaces (network, host name, process ids, mounts) that lives as long as its first process,
which ends when this program does, however that ends. So nothing is left behind, and nothing outside is touched.

Each host has one Ethernet interface, a TAP device, and `Switch` carries its frames in user space: it can cut a host off
without a sign, delay frames and lose some. (Where the kernel has no `netem`, only that is possible, and where it has,
this does the same.) TCP and everything above it are the kernel's own.
"""

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

SUBNET = "10.77.0"
# From <linux/if_tun.h> and <linux/sched.h>.
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18
BROADCAST = b"\xff" * 6
# The first process of a host: names it, says that it is ready, and ends when its standard input does.
INIT = """
echo {name} > /proc/sys/kernel/hostname
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
ip link set lo up && echo ready && exec cat > /dev/null
"""
# Seconds that starting a host may take on a busy machine.
STARTING = 60.0

_libc = ctypes.CDLL(None, use_errno=True)


def not_permitted() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    try:
        with Switch() as switch:
            Host(switch, "probe", 1).stop()
    except (OSError, RuntimeError) as error:
        return f"hosts need root, network namespaces, /dev/net/tun and iproute2 here: {error}"
    return None


def private_mounts() -> None:
    """From now on, what this process mounts is seen by it and its children alone, and vanishes with them."""
    _checked(_libc.unshare(CLONE_NEWNS))
    _checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None))


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


@dataclass
class Port:
    """A host's cable: what happens to the frames that it sends, and to all of them if it is cut."""

    tap: int
    is_cut: bool = False
    delay: float = 0.0  # seconds
    loss: float = 0.0  # share of frames


class Switch:
    """An Ethernet switch: reads frames from the ports, and writes each to where its address was last seen."""

    def __init__(self, seed: int = 0) -> None:
        self._ports: list[Port] = []
        self._where: dict[bytes, Port] = {}
        self._due: list[tuple[float, int, Port, bytes]] = []
        self._lock, self._rng, self._count = threading.Lock(), random.Random(seed), 0  # noqa: S311 - no secrets
        self._wake_end, self._wake = os.pipe()
        self._running = True
        self._thread = threading.Thread(target=self._run, name="switch", daemon=True)

    def __enter__(self) -> "Switch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._notify()
        self._thread.join()
        for file in (self._wake_end, self._wake):
            os.close(file)

    def plug(self, port: Port) -> None:
        with self._lock:
            self._ports.append(port)
        self._notify()

    def unplug(self, port: Port) -> None:
        with self._lock:
            self._ports.remove(port)
            self._where = {address: at for address, at in self._where.items() if at is not port}
            self._due = [entry for entry in self._due if entry[2] is not port]
            heapq.heapify(self._due)
            os.close(port.tap)
        self._notify()

    def _notify(self) -> None:
        os.write(self._wake, b".")

    def _run(self) -> None:
        while self._running:
            with self._lock:
                ports = {port.tap: port for port in self._ports}
                wait = max(self._due[0][0] - time.monotonic(), 0.0) if self._due else None
            with contextlib.suppress(OSError):  # a port was unplugged meanwhile
                readable = select.select([self._wake_end, *ports], [], [], wait)[0]
                if self._wake_end in readable:
                    os.read(self._wake_end, 4096)
                    continue
                with self._lock:
                    for tap in readable:
                        if ports[tap] in self._ports:
                            self._accept(ports[tap], os.read(tap, 65536))
                    self._deliver()

    def _accept(self, port: Port, frame: bytes) -> None:
        """Note when and to whom a frame goes, unless it is lost."""
        if port.is_cut or self._rng.random() < port.loss:
            return
        target, source = frame[:6], frame[6:12]
        self._where[source] = port
        known = self._where.get(target)
        targets = [other for other in self._ports if other is not port] if known is None else [known]
        for other in targets:
            self._count += 1  # frames that are due at the same time keep their order
            heapq.heappush(self._due, (time.monotonic() + port.delay, self._count, other, frame))

    def _deliver(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, _, port, frame = heapq.heappop(self._due)
            if not port.is_cut:
                with contextlib.suppress(OSError):  # its queue is full, or it is down: the frame is lost
                    os.write(port.tap, frame)


class Host:
    """A host with an address, on a switch."""

    def __init__(self, switch: Switch, name: str, number: int) -> None:
        self.name, self.address = name, f"{SUBNET}.{number}"
        self._switch = switch
        spaces = ["--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
        self._first = subprocess.Popen(  # noqa: S603 - our own program
            ["unshare", *spaces, "sh", "-ec", INIT.format(name=name)],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )
        assert self._first.stdout is not None, "it is a pipe"
        if self._first.stdout.readline() != b"ready\n":
            assert self._first.stderr is not None, "it is a pipe"
            raise RuntimeError(self._first.stderr.read().decode().strip() or "namespaces are not permitted")
        self.pid = psutil.Process(self._first.pid).children()[0].pid
        self.port = Port(_tap(self.pid))
        switch.plug(self.port)
        hardware = f"02:00:00:00:00:{number:02x}"
        for command in (
            f"link set eth0 address {hardware}",
            f"addr add {self.address}/24 dev eth0",
            "link set eth0 up",
        ):
            subprocess.run(self._inside("ip", *command.split()), check=True, timeout=STARTING)  # noqa: S603

    def _inside(self, *command: str, user: tuple[int, int] | None = None, folder: Path = Path("/")) -> list[str]:
        spaces = ["--net", "--uts", "--pid", "--mount", f"--wd={folder}"]
        who = [] if user is None else [f"--setuid={user[0]}", f"--setgid={user[1]}"]
        return ["nsenter", f"--target={self.pid}", *spaces, *who, "--", *command]

    def start(
        self,
        *command: str,
        folder: Path,
        output: IO[bytes],
        environment: Mapping[str, str] | None = None,
        user: tuple[int, int] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start a program on this host, as this user if not as root."""
        return subprocess.Popen(  # noqa: S603 - our own programs
            self._inside(*command, user=user, folder=folder),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    @property
    def is_gone(self) -> bool:
        return self._first.poll() is not None

    def stop(self) -> None:
        """Power off: no process has the time to say goodbye, and no frame leaves the host."""
        if self.is_gone:
            return
        self.port.is_cut = True
        self._first.kill()
        self._first.wait()
        for pipe in (self._first.stdin, self._first.stdout, self._first.stderr):
            assert pipe is not None, "all of them are pipes"
            pipe.close()
        self._switch.unplug(self.port)


def _tap(pid: int) -> int:
    """The file of a new interface eth0 in the network of this process. The interface vanishes when it is closed."""
    made: list[int | OSError] = []

    def make() -> None:  # in a thread of its own: only the network of the calling thread changes
        try:
            with Path(f"/proc/{pid}/ns/net").open() as network:
                _checked(_libc.setns(network.fileno(), 0))
            file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH14x", b"eth0", IFF_TAP | IFF_NO_PI))
            made.append(file)
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
