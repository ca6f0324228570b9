"""Lab 03, schedules: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group
from grader.judge import lab03_schedules as lab03


@points(15, cell="schedules-predictions", title="Shared memory and reads are counted right")
def test_predictions(submission, assess):
    assess(submission.judge_value("predictions", lab03.predicted))


@points(5, cell="scheduled_matmul-right", title="The kernel can be built at every schedule")
def test_signature(submission, assess):
    assess(submission.signature("scheduled_matmul"))


@points(10, cell="scheduled_matmul-right", title="Every schedule fits into shared memory")
def test_fit(submission, assess):
    assess(submission.judge_value("schedules", lambda schedules: lab03.fit(schedules, submission.card)))


@points(5, cell="scheduled_matmul-right", title="The best is one of the schedules")
def test_best(submission, assess):
    schedules = submission.value("schedules")
    assess(submission.judge_value("best", lambda best: lab03.among(best, schedules)))


@points(15, cell="scheduled_matmul-right", title="Products are right at every schedule where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("scheduled_matmul", Group.TILES))


@points(
    10, cell="scheduled_matmul-right", title="Products are right at every schedule where the last tiles stick out"
)
def test_tails(submission, assess):
    assess(submission.correct("scheduled_matmul", Group.TAILS))


@points(25, cell="scheduled_matmul-fast", title="The best is near the best of the judge's own sweep")
def test_fast(submission, assess):
    assess(submission.fast("scheduled_matmul"))


@points(15, cell="schedules-reason", title="The reason says what limits the best schedule", manual=True)
def test_reason(submission, assess):
    assess(submission.written())
