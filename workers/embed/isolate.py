"""A process to lose: finds the texts that kill an encoder, and encodes the others.

In:  texts of a unit that is suspected of killing its workers.
Out: their Documents; a text that alone killed the process twice has that as its reason.

A process may also be killed from outside. So nothing is held against a text before it was alone,
and then only if another text is survived: under a lack of memory none is.
"""

import errno
import multiprocessing
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from sbert_core.encoder.documents import Documents

DEADLY = "kills the encoder's process"
DEATHS_ALONE = 2
HARMLESS = "a"
MAX_ROUNDS = 5


class Setup(Protocol):
    """How to load an encoder and use it, in any process."""

    def load(self) -> Any: ...  # noqa: ANN401

    def encode(self, encoder: Any, texts: list[object]) -> Documents: ...  # noqa: ANN401


def without_deadly(setup: Setup, texts: list[object]) -> Documents:
    """Documents of all texts but those that kill."""
    process = _Process(setup)
    try:
        deadly: set[int] = set()
        for _ in range(MAX_ROUNDS):
            kept = [number for number in range(len(texts)) if number not in deadly]
            documents = process.encoded([texts[number] for number in kept])
            if documents is not None:
                return _renumbered(documents, np.array(kept, np.int64), deadly)
            deadly |= _deadly(process, texts, kept)
        raise OSError(
            errno.ENOMEM,
            f"the encoder's process died {MAX_ROUNDS} times over {len(texts)} texts that do not "
            "kill it one by one; look for a lack of memory",
        )
    finally:
        process.stop()


def _deadly(process: "_Process", texts: list[object], numbers: list[int]) -> set[int]:
    """Halve what just died until single texts are left."""
    if len(numbers) == 1:
        text = [texts[numbers[0]]]
        if any(process.encoded(text) is not None for _ in range(1, DEATHS_ALONE)):
            return set()
        if process.encoded([HARMLESS]) is None:
            raise OSError(
                errno.ENOMEM,
                "the encoder's process dies of any text; look for a lack of memory",
            )
        return set(numbers)
    middle = len(numbers) // 2
    found: set[int] = set()
    for half in (numbers[:middle], numbers[middle:]):
        if process.encoded([texts[number] for number in half]) is None:
            found |= _deadly(process, texts, half)
    return found


def _renumbered(documents: Documents, kept: np.ndarray, deadly: set[int]) -> Documents:
    reasons = {int(kept[number]): why for number, why in documents.reasons.items()}
    return replace(
        documents,
        document=kept[documents.document],
        reasons=reasons | dict.fromkeys(sorted(deadly), DEADLY),
    )


class _Process:
    """A child that encodes; started again when it has died."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.context = multiprocessing.get_context("spawn")
        self.child: Any = None
        self.pipe: Any = None

    def encoded(self, texts: list[object]) -> Documents | None:
        """Documents, or None if the child died; an ordinary error is raised."""
        if self.child is None:
            self._start()
        try:
            self.pipe.send(texts)
            result = self.pipe.recv()
        except (EOFError, OSError):
            self.stop()
            return None
        if isinstance(result, BaseException):
            raise result
        return result

    def _start(self) -> None:
        """Start the child and wait until it has loaded the model: that is no text's fault."""
        self.pipe, theirs = self.context.Pipe()
        # Not a daemon: Ray's workers may be, and daemons have no children.
        self.child = self.context.Process(target=_serve, args=(self.setup, theirs))
        self.child.start()
        theirs.close()
        try:
            loaded = self.pipe.recv()
        except (EOFError, OSError):
            self.stop()
            raise OSError(
                errno.ENOMEM, "a process died while it loaded the model; look for a lack of memory"
            ) from None
        if isinstance(loaded, BaseException):
            raise loaded

    def stop(self) -> None:
        if self.child is not None:
            self.pipe.close()
            self.child.kill()
            self.child.join()
            self.child = None


def _serve(setup: Setup, pipe: Any) -> None:  # noqa: ANN401
    try:
        encoder = setup.load()
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        pipe.send(error)
        return
    pipe.send("loaded")
    while True:
        try:
            texts = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(setup.encode(encoder, texts))
        except Exception as error:  # noqa: BLE001 - raised again by the parent
            pipe.send(error)
