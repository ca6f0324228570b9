"""Lab 02, tiled matmul: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group


@points(5, cell="matmul-right", title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("matmul"))


@points(25, cell="matmul-right", title="Products are right where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("matmul", Group.TILES))


@points(20, cell="matmul-right", title="Products are right where the last tiles stick out")
def test_tails(submission, assess):
    assess(submission.correct("matmul", Group.TAILS))


@points(10, cell="matmul-right", title="Only memory that exists, and was written, is used")
def test_clean(submission, assess):
    assess(submission.clean("matmul"))


@points(40, cell="matmul-fast", title="Tensor cores are kept busy")
def test_fast(submission, assess):
    assess(submission.fast("matmul"))
