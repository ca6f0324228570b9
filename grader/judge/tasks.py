"""The tasks, by lab."""

from grader.judge.lab01_vector_add import VECTOR_ADD
from grader.judge.lab02_matmul import MATMUL
from grader.judge.lab06_flash_attention import ATTENTION, CAUSAL_ATTENTION
from grader.judge.task import Task

TASKS: dict[str, tuple[Task, ...]] = {
    "lab01_vector_add": (VECTOR_ADD,),
    "lab02_matmul": (MATMUL,),
    "lab06_flash_attention": (ATTENTION, CAUSAL_ATTENTION),
}


def find(lab: str, kernel: str) -> Task:
    for task in TASKS[lab]:
        if task.kernel == kernel:
            return task
    raise KeyError(f"lab {lab} has no task for kernel {kernel!r}")
