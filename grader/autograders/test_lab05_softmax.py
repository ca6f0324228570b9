"""Lab 05, softmax: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group

RIGHT, FAST = "softmax-right", "softmax-fast"
ONLINE_RIGHT, ONLINE_FAST = "online_softmax-right", "online_softmax-fast"


@points(5, cell=RIGHT, title="The kernel can be built, and has the right parameters", free=True)
def test_signature(submission, assess):
    assess(submission.signature("softmax"))


@points(15, cell=RIGHT, title="Rows are right where the tile fits")
def test_correct(submission, assess):
    assess(submission.correct("softmax", Group.TILES))


@points(10, cell=RIGHT, title="Rows are right where the tile sticks out")
def test_tails(submission, assess):
    assess(submission.correct("softmax", Group.TAILS))


@points(5, cell=RIGHT, title="Only memory that exists, and was written, is used")
def test_clean(submission, assess):
    assess(submission.clean("softmax"))


@points(5, cell=RIGHT, title="A row is read once")
def test_lean(submission, assess):
    assess(submission.lean("softmax"))


@points(10, cell=FAST, title="It is fast, beside torch and torch.compile")
def test_fast(submission, assess):
    assess(submission.fast("softmax"))


@points(5, cell=ONLINE_RIGHT, title="The online kernel can be built, and has the right parameters", free=True)
def test_online_signature(submission, assess):
    assess(submission.signature("online_softmax"))


@points(15, cell=ONLINE_RIGHT, title="Long rows are right where the tiles fit")
def test_online_correct(submission, assess):
    assess(submission.correct("online_softmax", Group.TILES))


@points(10, cell=ONLINE_RIGHT, title="Long rows are right where the last tile sticks out")
def test_online_tails(submission, assess):
    assess(submission.correct("online_softmax", Group.TAILS))


@points(5, cell=ONLINE_RIGHT, title="Online, only memory that exists, and was written, is used")
def test_online_clean(submission, assess):
    assess(submission.clean("online_softmax"))


@points(5, cell=ONLINE_RIGHT, title="A long row is read twice, and no more")
def test_online_lean(submission, assess):
    assess(submission.lean("online_softmax"))


@points(10, cell=ONLINE_FAST, title="The online kernel is fast, beside torch and torch.compile")
def test_online_fast(submission, assess):
    assess(submission.fast("online_softmax"))
