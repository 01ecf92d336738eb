"""Numbered tasks of a scan: those that an interrupted run has finished are not repeated.

In:  a function that saves its result last, and a call for each number.
Out: the results, in the order of the numbers.
"""

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from pipelines.runtime.tasks import as_they_come
from workers.embed.scan_files import ScanFiles

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def run_step(
    files: ScanFiles,
    function: Callable[Parameters, Result],
    calls: Mapping[int, tuple[object, ...]],
    kind: type[Result],
    *,
    shared: tuple[object, ...] = (),
    step: str = "",
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Call the function with `files`, `shared` and each call, in tasks.

    step: the name under which results are saved, that of the function by default. report: is given
    each result as it comes.
    """
    step = step or function.__name__
    done = sorted(files.find_finished(step) & calls.keys())
    found = {number: files.load(step, number, kind) for number in done}
    for result in found.values():
        report(result)
    left = [number for number in calls if number not in found]
    tasks = as_they_come(function, [calls[number] for number in left], shared=(files, *shared))
    for place, result in tasks:
        found[left[place]] = result
        report(result)
    return [found[number] for number in sorted(found)]
