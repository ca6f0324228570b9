"""Lab 05, softmax: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group


@points(5, cell="softmax-right", title="softmax can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("softmax"))


@points(15, cell="softmax-right", title="Rows are right where the tile fits")
def test_correct(submission, assess):
    assess(submission.correct("softmax", Group.TILES))


@points(10, cell="softmax-right", title="Rows are right where the tile sticks out")
def test_tails(submission, assess):
    assess(submission.correct("softmax", Group.TAILS))


@points(5, cell="softmax-right", title="softmax uses only memory that exists and was written")
def test_clean(submission, assess):
    assess(submission.clean("softmax"))


@points(15, cell="softmax-fast", title="softmax is as fast as the best library")
def test_fast(submission, assess):
    assess(submission.fast("softmax"))


@points(5, cell="online_softmax-right", title="online_softmax can be built, with the right parameters", free=True)
def test_online_signature(submission, assess):
    assess(submission.signature("online_softmax"))


@points(15, cell="online_softmax-right", title="Long rows are right where the tiles fit")
def test_online_correct(submission, assess):
    assess(submission.correct("online_softmax", Group.TILES))


@points(10, cell="online_softmax-right", title="Long rows are right where the last tile sticks out")
def test_online_tails(submission, assess):
    assess(submission.correct("online_softmax", Group.TAILS))


@points(5, cell="online_softmax-right", title="online_softmax uses only memory that exists and was written")
def test_online_clean(submission, assess):
    assess(submission.clean("online_softmax"))


@points(15, cell="online_softmax-fast", title="online_softmax is as fast as the best library")
def test_online_fast(submission, assess):
    assess(submission.fast("online_softmax"))
