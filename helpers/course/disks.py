"""A disk without file locks, for one process: Linux answers its lock requests as such a disk does (seccomp)."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_FLOCK = {"x86_64": 73, "aarch64": 32}  # number of the system call that HDF5 locks with (linux/unistd.h)

# The filter is a program of the kernel's packet filter: load the number of the call; if it is flock, answer with an
# error, else let it pass. Instructions are (code, jump if true, jump if false, value), see linux/filter.h.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ANSWER_ERROR, _LET_PASS = 0x0005_0000, 0x7FFF_0000
_NO_NEW_PRIVILEGES, _SET_FILTER, _MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_locks() -> None:
    """Make every file lock of this process fail with errno 37 from now on; call it in a child, it cannot be undone.

    Raises
    ------
    OSError
        This system has no such filter (not Linux, another processor), or does not allow it.
    """
    number = _FLOCK.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        raise OSError(errno.ENOSYS, "a disk without locks can be played on Linux (x86_64, aarch64) only.")
    steps = ((_LOAD, 0, 0, 0), (_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ANSWER_ERROR | errno.ENOLCK))
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *step) for step in (*steps, (_RETURN, 0, 0, _LET_PASS)))
    )
    program = _Program(len(steps) + 1, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for request in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_FILTER, _MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*request):
            raise OSError(ctypes.get_errno(), "this system does not allow a process to filter its own system calls.")
