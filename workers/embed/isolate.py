"""Encode texts in a child process, leaving out those that crash it.

In:  texts of a unit whose workers crashed.
Out: their DocumentVectors; a text that alone crashed the process twice has that as its reason.

A process may also be killed from outside, by a lack of memory for example. So a text is left out
only if it crashes the process alone, and if the process survives another text.
"""

import errno
import multiprocessing
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from sbert_core.arrays import Int64Array
from sbert_core.encoder.documents import DocumentVectors

if TYPE_CHECKING:  # generic in the stubs alone
    from multiprocessing.connection import Connection

    PipeEnd: TypeAlias = Connection[object, object]

E = TypeVar("E")

CRASH_REASON = "kills the encoder's process"
CRASHES_ALONE = 2  # that a text must cause before it is left out
HARMLESS = "a"  # a text that no encoder crashes on
MAX_ROUNDS = 5


class EncoderSource(Protocol[E]):
    """Loads an encoder and encodes with it, in any process."""

    def load(self) -> E:
        """The encoder."""
        ...

    def encode(self, encoder: E, texts: list[object]) -> DocumentVectors:
        """Vectors of texts."""
        ...


def encode_excluding_crashers(source: EncoderSource[E], texts: list[object]) -> DocumentVectors:
    """Vectors of all texts; those that crash the process have CRASH_REASON in the place of one.

    OSError (ENOMEM) if the process also dies without a single text to blame.
    """
    process = _ChildProcess(source)
    try:
        crashers: set[int] = set()
        for _ in range(MAX_ROUNDS):
            kept = [number for number in range(len(texts)) if number not in crashers]
            documents = process.encode([texts[number] for number in kept])
            if documents is not None:
                return _renumber(documents, np.array(kept, np.int64), crashers)
            crashers |= _find_crashers(process, texts, kept)
        raise OSError(
            errno.ENOMEM,
            f"the encoder's process died {MAX_ROUNDS} times over {len(texts)} texts that do not "
            "kill it one by one; look for a lack of memory",
        )
    finally:
        process.stop()


def _find_crashers(
    process: "_ChildProcess[E]", texts: list[object], numbers: list[int]
) -> set[int]:
    """The texts that crash the process alone: halve the texts it just crashed on."""
    if len(numbers) == 1:
        text = [texts[numbers[0]]]
        if any(process.encode(text) is not None for _ in range(1, CRASHES_ALONE)):
            return set()
        if process.encode([HARMLESS]) is None:
            raise OSError(
                errno.ENOMEM,
                "the encoder's process dies of any text; look for a lack of memory",
            )
        return set(numbers)
    middle = len(numbers) // 2
    found: set[int] = set()
    for half in (numbers[:middle], numbers[middle:]):
        if process.encode([texts[number] for number in half]) is None:
            found |= _find_crashers(process, texts, half)
    return found


def _renumber(documents: DocumentVectors, kept: Int64Array, crashers: set[int]) -> DocumentVectors:
    reasons = {int(kept[number]): why for number, why in documents.reasons.items()}
    return replace(
        documents,
        document=kept[documents.document],
        reasons=reasons | dict.fromkeys(sorted(crashers), CRASH_REASON),
    )


class _ChildProcess(Generic[E]):
    """A child process that encodes; started again after a crash."""

    def __init__(self, source: EncoderSource[E]) -> None:
        self.source = source
        self._running: tuple[BaseProcess, PipeEnd] | None = None

    def encode(self, texts: list[object]) -> DocumentVectors | None:
        """Vectors of texts, or None if the child died; an exception in the child is raised here."""
        if self._running is None:
            self._running = self._start()
        _, pipe = self._running
        try:
            pipe.send(texts)
            result = pipe.recv()
        except (EOFError, OSError):
            self.stop()
            return None
        if isinstance(result, BaseException):
            raise result
        assert isinstance(result, DocumentVectors), "the child answers with vectors or an error"
        return result

    def _start(self) -> "tuple[BaseProcess, PipeEnd]":
        """Start the child and wait until it has loaded the model; OSError if it dies of that."""
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        # Not a daemon: Ray's workers may be, and daemons have no children.
        child = context.Process(target=_serve, args=(self.source, theirs))
        child.start()
        theirs.close()
        try:
            loaded = pipe.recv()
        except (EOFError, OSError):
            _end(child, pipe)
            raise OSError(
                errno.ENOMEM, "a process died while it loaded the model; look for a lack of memory"
            ) from None
        if isinstance(loaded, BaseException):
            _end(child, pipe)
            raise loaded
        return child, pipe

    def stop(self) -> None:
        """End the child if it runs."""
        if self._running is not None:
            _end(*self._running)
            self._running = None


def _end(child: "BaseProcess", pipe: "PipeEnd") -> None:
    pipe.close()
    child.kill()
    child.join()


def _serve(source: EncoderSource[E], pipe: "PipeEnd") -> None:
    """Main function of the child: answer each list of texts until the pipe is closed."""
    try:
        encoder = source.load()
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        pipe.send(error)
        return
    pipe.send("loaded")
    while True:
        try:
            texts = pipe.recv()
        except EOFError:
            return
        assert isinstance(texts, list)
        try:
            pipe.send(source.encode(encoder, texts))
        except Exception as error:  # noqa: BLE001 - raised again by the parent
            pipe.send(error)
