import threading
import time

import pytest

from sbert_core.threads import map_ahead, parallel_for, prefetch


def test_prefetch_gives_the_same_items_in_order():
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))


def test_prefetch_makes_the_next_item_while_this_one_is_used():
    made: list[int] = []

    def items():
        for number in range(5):
            made.append(number)
            yield number

    source = prefetch(items(), depth=1)
    assert next(source) == 0
    deadline = time.monotonic() + 5
    while len(made) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert made[:2] == [0, 1]
    source.close()


def test_prefetch_error_of_the_producer_reaches_the_consumer_after_its_items():
    def items():
        yield 1
        raise KeyError("lost")

    source = prefetch(items())
    assert next(source) == 1
    with pytest.raises(KeyError, match="lost"):
        next(source)


def test_prefetch_closed_early_ends_its_thread():
    before = threading.active_count()
    source = prefetch(iter(range(10**9)))
    next(source)
    source.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("num_ahead", [1, 2, 5])
def test_map_ahead_gives_results_in_order_and_no_more_than_wanted_in_advance(num_ahead):
    taken: list[int] = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    def late_if_even(number):
        time.sleep(0.002 * (number % 2 == 0))
        return -number

    for place, result in enumerate(map_ahead(late_if_even, items(), num_ahead)):
        assert result == -place
        assert len(taken) <= place + 1 + num_ahead
    assert len(taken) == 20


def test_map_ahead_works_on_as_many_items_at_the_same_time():
    both = threading.Barrier(2, timeout=10)
    assert len(list(map_ahead(lambda _: both.wait(), range(4), 2))) == 4


def test_map_ahead_error_of_an_item_comes_after_the_results_before_it():
    results = map_ahead(lambda number: 1 // (3 - number), range(10), 2)
    assert [next(results) for _ in range(3)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_ahead_closed_early_ends_its_threads():
    before = threading.active_count()
    results = map_ahead(abs, iter(range(10**9)), 2)
    next(results)
    results.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_parallel_for_every_item_is_worked_on_once(num_threads):
    done: list[int] = []
    parallel_for(done.append, iter(range(200)), num_threads)
    assert sorted(done) == list(range(200))


def test_parallel_for_two_threads_work_at_the_same_time():
    both = threading.Barrier(2, timeout=10)
    parallel_for(lambda _: both.wait(), range(4), 2)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_parallel_for_first_error_is_raised_and_stops_the_rest(num_threads):
    done: list[int] = []

    def work(item: int) -> None:
        if item == 5:
            raise RuntimeError("item 5")
        done.append(item)

    with pytest.raises(RuntimeError, match="item 5"):
        parallel_for(work, iter(range(100_000)), num_threads)
    assert len(done) < 100_000


def test_parallel_for_error_of_the_items_is_raised():
    def items():
        yield 1
        raise ValueError("source broke")

    with pytest.raises(ValueError, match="source broke"):
        parallel_for(lambda _: None, items(), 2)
