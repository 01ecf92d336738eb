"""Private memory of a process."""

from pathlib import Path

_peak = 0


def private_bytes() -> int:
    """Memory that is not shared with other processes; 0 on systems without smaps_rollup."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return 1024 * sum(kilobytes)


def peak_private_bytes() -> int:
    """The largest value of `private_bytes` at calls of this function in this process."""
    global _peak
    _peak = max(_peak, private_bytes())
    return _peak
