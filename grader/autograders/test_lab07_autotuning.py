"""Lab 07, autotuning: what each point is for."""

from grader.autograders.table import points
from grader.catalog import Group
from grader.judge import lab07_autotuning as lab07


@points(30, cell="autotuning-kept", title="What is kept fits the budget, and nothing that fits is dropped")
def test_kept(submission, assess):
    assess(submission.judge_value("kept", lab07.filtered))


@points(10, cell="autotuning-configs", title="The tuner gets a shortlist of what is kept")
def test_configs(submission, assess):
    kept = submission.value("kept")
    assess(submission.judge_value("configs", lambda configs: lab07.shortlisted(configs, kept)))


@points(15, cell="autotuning-cache_answers", title="A result is kept in the file, and found again where it holds")
def test_cache(submission, assess):
    assess(submission.judge_value("cache_answers", lab07.remembered))


@points(5, cell="projection-right", title="The kernel can be built at every schedule of the shortlist")
def test_signature(submission, assess):
    assess(submission.signature("projection"))


@points(10, cell="projection-right", title="Every schedule of the shortlist compiles and fits the budget")
def test_compiled(submission, assess):
    assess(lab07.compiled(submission))


@points(5, cell="projection-right", title="Results are right at each of them where the tiles fit")
def test_correct(submission, assess):
    assess(submission.correct("projection", Group.TILES))


@points(5, cell="projection-right", title="Results are right at each of them where the last tiles stick out")
def test_tails(submission, assess):
    assess(submission.correct("projection", Group.TAILS))


@points(20, cell="projection-fast", title="The tuned schedule is near the best of the judge's own sweep")
def test_fast(submission, assess):
    configs = submission.value("configs")
    found = submission.judge_value("tuned", lambda tuned: lab07.among(tuned, configs))
    assess(found if found.findings else submission.fast("projection"))
