"""Lab 00, the environment and a first tile: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group


@points(10, cell="tile_copy-right", title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("tile_copy"))


@points(40, cell="tile_copy-right", title="The copy is right where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("tile_copy", Group.TILES))


@points(30, cell="tile_copy-right", title="The copy is right where the last tiles stick out")
def test_tails(submission, assess):
    assess(submission.correct("tile_copy", Group.TAILS))


@points(20, cell="tile_copy-right", title="Only memory that exists, and was written, is used")
def test_clean(submission, assess):
    assess(submission.clean("tile_copy"))
