"""The tasks, by lab."""

from grader.judge.lab00_environment import TILE_COPY
from grader.judge.lab01_vector_add import VECTOR_ADD
from grader.judge.lab02_matmul import MATMUL
from grader.judge.lab03_schedules import SCHEDULED_MATMUL
from grader.judge.lab04_fused_epilogue import GEMM_BIAS_GELU
from grader.judge.lab05_softmax import ONLINE_SOFTMAX, SOFTMAX
from grader.judge.lab06_flash_attention import ATTENTION, CAUSAL_ATTENTION
from grader.judge.lab07_autotuning import PROJECTION
from grader.judge.lab08_introspection import SCALE_ROWS, SCORES, STANDARDISE
from grader.judge.task import Task

TASKS: dict[str, tuple[Task, ...]] = {
    "lab00_environment": (TILE_COPY,),
    "lab01_vector_add": (VECTOR_ADD,),
    "lab02_matmul": (MATMUL,),
    "lab03_schedules": (SCHEDULED_MATMUL,),
    "lab04_fused_epilogue": (GEMM_BIAS_GELU,),
    "lab05_softmax": (SOFTMAX, ONLINE_SOFTMAX),
    "lab06_flash_attention": (ATTENTION, CAUSAL_ATTENTION),
    "lab07_autotuning": (PROJECTION,),
    "lab08_introspection": (SCALE_ROWS, SCORES, STANDARDISE),
}


def find(lab: str, kernel: str) -> Task:
    for task in TASKS[lab]:
        if task.kernel == kernel:
            return task
    raise KeyError(f"lab {lab} has no task for kernel {kernel!r}")
