"""Lab 01, vector add: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group


@points(5, cell="vector_add-right", title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("vector_add"))


@points(25, cell="vector_add-right", title="Sums are right where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("vector_add", Group.TILES))


@points(20, cell="vector_add-right", title="Sums are right where the last tile sticks out")
def test_tails(submission, assess):
    assess(submission.correct("vector_add", Group.TAILS))


@points(20, cell="vector_add-right", title="Only memory that exists is touched")
def test_clean(submission, assess):
    assess(submission.clean("vector_add"))


@points(30, cell="vector_add-fast", title="As fast as the memory allows")
def test_fast(submission, assess):
    assess(submission.fast("vector_add"))
