"""Lab 04, fused epilogue: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group

RIGHT, FAST = "gemm_bias_gelu-right", "gemm_bias_gelu-fast"


@points(5, cell=RIGHT, title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("gemm_bias_gelu"))


@points(20, cell=RIGHT, title="GELU(A B + bias) is right where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("gemm_bias_gelu", Group.TILES))


@points(15, cell=RIGHT, title="It is right where the last tiles stick out")
def test_tails(submission, assess):
    assess(submission.correct("gemm_bias_gelu", Group.TAILS))


@points(10, cell=RIGHT, title="Only memory that exists, and was written, is used")
def test_clean(submission, assess):
    assess(submission.clean("gemm_bias_gelu"))


@points(10, cell=RIGHT, title="Nothing takes a detour through global memory")
def test_lean(submission, assess):
    assess(submission.lean("gemm_bias_gelu"))


@points(40, cell=FAST, title="It is fast, beside torch and torch.compile")
def test_fast(submission, assess):
    assess(submission.fast("gemm_bias_gelu"))
