"""Whom the deaths of an encoder's process are held against; tests/chaos has a text that kills."""

import os

import pytest

from workers.embed.isolate import encode_excluding_crashers

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]  # three processes that import torch


class Doomed:
    """Stands for an encoder where memory lacks: its process is lost over any text."""

    def load(self) -> None:
        return None

    def encode(self, encoder: None, texts: list) -> None:
        os._exit(1)


def test_no_text_is_blamed_where_all_kill():
    with pytest.raises(OSError, match="dies of any text; look for a lack of memory"):
        encode_excluding_crashers(Doomed(), ["one"])
