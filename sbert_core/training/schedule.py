"""Step -> learning rate: linear warm-up, then linear decay to nothing, as in the paper."""


def rate_share(step: int, num_steps: int, warmup: float) -> float:
    """The share of the full rate at a step, counted from 0."""
    num_warm = round(num_steps * warmup)
    if step < num_warm:
        return step / max(1, num_warm)
    return max(0.0, (num_steps - step) / max(1, num_steps - num_warm))
