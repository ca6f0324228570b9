from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    text: str
    same_outputs: bool


def reason_for(task, operator, name):
    return None
