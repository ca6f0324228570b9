"""What a run must know of a kernel whatever its tensors are: found once, for as long as the kernel lives."""

from weakref import WeakKeyDictionary

from grader.ir import nodes
from grader.simulator.epochs import with_epochs
from grader.simulator.perthread import unfold
from grader.simulator.survey import survey

#: Without the kernel itself where nothing was unfolded: a value that holds its key would never be dropped.
_known: WeakKeyDictionary[nodes.Kernel, tuple[nodes.Kernel | None, list[nodes.Buffer]]] = WeakKeyDictionary()


def prepare(kernel: nodes.Kernel) -> tuple[nodes.Kernel, list[nodes.Buffer]]:
    """The kernel without thread indices and with reducers in one form, and its buffers.

    Raises OverBudget and Unsupported.
    """
    found = _known.get(kernel)
    if found is None:
        buffers = survey(kernel)  # first of all: is it small enough to be walked?
        unfolded = unfold(with_epochs(kernel))
        found = (None, buffers) if unfolded is kernel else (unfolded, survey(unfolded))
        _known[kernel] = found
    unfolded, buffers = found
    return kernel if unfolded is None else unfolded, buffers
