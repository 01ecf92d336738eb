"""The lock of an object store: a lease object with a heartbeat, since objects have no flock."""

import contextlib
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator

from sbert_core.storage.base import LOCK, BusyError, ConflictError, Storage

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0


class Lease:
    """The right to write: an object that a thread renews every 15 s while the job runs.

    A lease that was not renewed for LEASE_SECONDS is free. modified_seconds: when an object was
    written, by the clock of the store.
    """

    def __init__(self, storage: Storage, modified_seconds: Callable[[str], float]) -> None:
        self.storage = storage
        self.modified_seconds = modified_seconds
        self.data = json.dumps({"owner": secrets.token_hex(8)}).encode()
        self.version: str | None = None
        self.stop = threading.Event()

    def take(self, now: float) -> None:
        """Write the lease; BusyError if another run holds it. now: by the clock of the store."""
        found = self.storage.stat(LOCK)
        if found is not None and now - self.modified_seconds(LOCK) < LEASE_SECONDS:
            raise BusyError(
                f"{self.storage.uri} is being written by another run; wait for it, or "
                f"{LEASE_SECONDS:.0f} s after its death"
            )
        try:
            self._write(found.version if found else None)
        except ConflictError:
            raise BusyError(f"{self.storage.uri} was taken by another run this moment") from None

    def _write(self, version: str | None) -> None:
        # Equal bytes have equal etags in most stores: random bytes give each renewal another one.
        data = self.data + secrets.token_hex(4).encode()
        self.storage.put_if(LOCK, data, version)
        found = self.storage.stat(LOCK)
        self.version = found.version if found else None

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew the lease in a thread while the block runs."""
        thread = threading.Thread(target=self._renew, daemon=True, name="lease")
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join()

    def _renew(self) -> None:
        while not self.stop.wait(LEASE_SECONDS / 4):
            try:
                self._write(self.version)
            except ConflictError:
                return  # another run took it; publishing fails by its condition
            except Exception as error:  # noqa: BLE001 - the network may recover soon
                log.warning("the lease on %s was not renewed: %s", self.storage.uri, error)

    def release(self) -> None:
        """Remove the lease, unless another run holds it by now."""
        found = self.storage.stat(LOCK)
        if found is not None and found.version == self.version:
            self.storage.delete([LOCK])
