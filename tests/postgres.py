"""A PostgreSQL server of one's own: on the loopback, in a temporary folder, gone at the end."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Users under whom the server may run where the tests run as root, which PostgreSQL refuses.
SERVANTS = ("postgres", "nobody")
STARTING = 120  # seconds


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them out of the PATH."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


@contextmanager
def server() -> Iterator[str]:
    """Gives the URL of an empty database."""
    folder = binaries()
    assert folder is not None, "PostgreSQL is not installed"
    user = servant()
    with tempfile.TemporaryDirectory(prefix="lazybo-postgres-") as home:
        if user:
            shutil.chown(home, user)
        data, port = f"{home}/data", _free_port()
        run(folder / "initdb", "--auth=trust", "--username=lazybo", "--encoding=UTF8", "-D", data, user=user)
        # As durable as it comes: nothing here turns fsync off. The socket is in the folder; TCP on the loopback alone.
        # 100 connections, the default, are too few for a hundred clients.
        options = f"-p {port} -c max_connections=400 -c listen_addresses=127.0.0.1 -c unix_socket_directories={home}"
        start = ("-D", data, "-l", f"{home}/log", "-t", str(STARTING), "-o", options)
        run(folder / "pg_ctl", "start", "-w", *start, user=user)
        try:
            yield f"postgresql+psycopg://lazybo@127.0.0.1:{port}/postgres"
        finally:
            run(folder / "pg_ctl", "stop", "-w", "-m", "immediate", "-D", data, user=user)


def servant() -> str | None:
    """The user to run the server as; None: who we are."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in SERVANTS if name in known)


def run(program: Path, *arguments: str, user: str | None) -> None:
    other: dict[str, Any] = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    # Not a pipe: the server would inherit it, and reading it would wait for the server's end.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run([program, *arguments], stdout=output, stderr=output, cwd="/", check=False, **other)
        if done.returncode:
            output.seek(0)
            raise RuntimeError(f"{program.name} failed:\n{output.read()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
