"""Step -> learning rate: linear warm-up, then linear decay to zero, as in the paper."""


def learning_rate_factor(step: int, num_steps: int, warmup: float) -> float:
    """The factor of the full learning rate at a step, counted from 0.

    warmup: share of the steps in which the rate rises.
    """
    num_warm = round(num_steps * warmup)
    if step < num_warm:
        return step / max(1, num_warm)
    return max(0.0, (num_steps - step) / max(1, num_steps - num_warm))
