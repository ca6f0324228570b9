"""What an exception says, in one line."""


def first_line(error: BaseException) -> str:
    """The first line of its words; the name of its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
