"""Actor: a board on which workers write how far they are, for the driver to read."""


class Board:
    """Rows and tokens of each unit; a unit begun again starts from nothing."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.tokens: dict[int, int] = {}

    def add(self, unit: int, rows: int, tokens: int) -> None:
        self.rows[unit] = self.rows.get(unit, 0) + rows
        self.tokens[unit] = self.tokens.get(unit, 0) + tokens

    def totals(self) -> tuple[int, int]:
        return sum(self.rows.values()), sum(self.tokens.values())
