"""A pickle that tells on whoever opens it."""

import os
from pathlib import Path


class Poison:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.mark),)
