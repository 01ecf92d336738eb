"""Whether this process was told to stop.

A signal raises an exception, and a library may lose it: in a destructor, in a callback of its own.
So loops over long work ask as well.
"""

import threading

_told = threading.Event()


def tell() -> None:
    _told.set()


def forget() -> None:
    _told.clear()


def stop_if_told() -> None:
    if _told.is_set():
        raise KeyboardInterrupt
