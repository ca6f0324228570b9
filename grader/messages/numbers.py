"""Numbers as people read them."""


def rate(value: float) -> str:
    """A rate (GB/s, TFLOP/s) to four digits: what was decided to be less than another one also reads so."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
