"""Files as a whole: written completely or not at all, and read up to a limit."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file as a whole: after an error or a kill at any moment there is the old file or the new one.

    A link stays, and the file that it points to is replaced. What is not a regular file, such as a pipe or /dev/stdout,
    is written directly.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    real = target.resolve()
    temporary = real.with_name(f".lazybo-{secrets.token_hex(8)}.tmp")
    try:
        _write_new(temporary, data)
        if real.exists():
            temporary.chmod(stat.S_IMODE(real.stat().st_mode))
        temporary.replace(real)
    except OSError as error:
        # The message names the file that was asked for.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, with the permissions that any new file gets, and wait until it is on the disk."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_at_most(path: str | Path, most: int) -> bytes:
    """The content of a file or a pipe. Raises a ValueError for a device, and if it has more than ``most`` bytes."""
    with Path(path).open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and not file.isatty():
            raise ValueError(f"{str(path)!r} is a device; give a file or a pipe")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{str(path)!r} has more than {most // 2**20} MB; give a smaller file")
    return content
