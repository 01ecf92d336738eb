"""The progress board on a dictionary in the place of Ray's store."""

from support.ray_kv import ray_kv as ray_kv

from workers.common.progress_board import (
    BoardTotals,
    ProgressBoard,
    clear,
    count_load_crashes,
    read_totals,
)


def test_totals_are_the_sum_of_all_workers_of_the_run_alone(ray_kv):
    for run, rows, tokens, remark in (("a", 3, 30, ""), ("a", 4, 50, "slow"), ("b", 100, 1000, "")):
        board = ProgressBoard(run)
        board.add(rows, 10)
        board.add(0, tokens - 10, remark)
        board.write()
    assert read_totals("a") == BoardTotals(7, 80, "slow")
    clear("a")
    assert read_totals("a") == BoardTotals(0, 0, "")
    assert read_totals("b") == BoardTotals(100, 1000, "")


def test_crashes_while_loading_are_counted_and_forgotten_after_success(ray_kv):
    crashed = [count_load_crashes("a") for _ in range(3)]  # entered and never left
    assert [block.__enter__() for block in crashed] == [0, 1, 2]
    assert read_totals("a") == BoardTotals(0, 0, "")
    with count_load_crashes("a") as number:
        assert number == 3
    with count_load_crashes("a") as number:
        assert number == 0
    for block in crashed:
        block.__exit__(None, None, None)
