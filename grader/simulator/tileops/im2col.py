"""T.im2col: the patches of an image (N×H×W×C) that a convolution multiplies, as a tile of a matrix.

The matrix has a row for each output pixel and a column for each (kernel row, kernel column, channel). The tile is
the ``nhw_step``-th along the rows and the ``c_step``-th along the columns. What lies outside the image is 0.

Hopper's copy engine does it with a box around the image that TileLang sizes for outputs as large as the image
(before striding), and with all columns of a tile in one kernel position: other cases are refused.
"""

import torch

from grader.ir import nodes
from grader.messages import _
from grader.simulator.expressions import Scope, State, integer
from grader.simulator.faults import FaultKind
from grader.simulator.memory import Window
from grader.simulator.tileops.arguments import check_count, check_options, constant_option, operation
from grader.simulator.tileops.tile import Runner, Tile, covers

SHARED = (nodes.SHARED, nodes.SHARED_DYNAMIC)


def im2col(call: nodes.Call, scope: Scope) -> Runner:
    check_count(call, scope, 8)
    check_options(call, scope, "eviction_policy")
    source, target = (Tile(arg, call, scope) for arg in call.args[:2])
    row_step, column_step = (integer(arg, scope, _("a step of T.im2col")) for arg in call.args[2:4])
    kernel, stride, dilation, padding = (constant_option(arg, call, scope) for arg in call.args[4:8])
    image, name = source.array, operation(call)
    if len(image.shape) != 4 or not covers(source.node) or len(target.array.shape) < 2:
        raise scope.unsupported(_("'{op}' of something that is no image of four dimensions").format(op=name))
    if not source.memory.is_global or target.memory.scope not in SHARED or image.dtype != target.array.dtype:
        raise scope.unsupported(_("'{op}' that is not from global to shared memory of one dtype").format(op=name))
    rows, columns = (target.constant_extent(axis) for axis in (-2, -1))
    others = [target.constant_extent(axis) for axis in range(len(target.array.shape) - 2)]
    _count, height, width, channels = image.shape
    if min(kernel, stride, dilation) < 1 or padding < 0 or rows is None or columns is None or set(others) > {1}:
        raise scope.unsupported(_("'{op}' with these arguments").format(op=name))
    if (kernel - 1) * dilation != 2 * padding:
        raise scope.unsupported(
            _("'{op}' whose padding is not dilation * (kernel - 1) / 2, which TileLang doesn't get right").format(
                op=name
            )
        )
    if channels % columns:
        raise scope.unsupported(
            _("'{op}' by tiles whose columns don't divide the {count} channels").format(op=name, count=channels)
        )
    out_height, out_width = (
        (size + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1 for size in (height, width)
    )
    meter, line, program = scope.program.meter, scope.line, scope.program
    program.note_read(image)
    program.note_write(target.array)
    moved = program.counters.copies(source.memory.scope, target.memory.scope)
    guarded = program.counters.guards()

    def run(state: State) -> None:
        meter.spend(line, 16 * rows * columns)
        meter.room(64 * rows * columns, line)
        m = row_step.run(state) * rows + torch.arange(rows)[:, None]
        k = column_step.run(state) * columns + torch.arange(columns)[None, :]
        where = (
            m.div(out_height * out_width, rounding_mode="floor"),
            m.div(out_width, rounding_mode="floor") % out_height * stride
            + k.div(kernel * channels, rounding_mode="floor") * dilation
            - padding,
            m % out_width * stride + k.div(channels, rounding_mode="floor") % kernel * dilation - padding,
            k % channels,
        )
        inside = torch.ones(rows, columns, dtype=torch.bool)
        flat = torch.zeros(rows, columns, dtype=torch.int64)
        for index, extent, step in zip(where, image.shape, image.strides, strict=True):
            inside &= (index >= 0) & (index < extent)
            flat = flat + index * step
        chosen = flat[inside]
        if chosen.numel():
            for kind, flags in (
                (FaultKind.UNINITIALISED_READ, image.unwritten(chosen)),
                (FaultKind.RACE, image.foreign(chosen, state.block_number)),
            ):
                source.flag_at(kind, flags, chosen, state)
        image.note_reader(chosen, None, state.block_number)
        if program.observer is not None:
            program.observer.read(image, chosen, state)
        source.note_read(chosen)
        moved(chosen.numel() * image.dtype.size)
        guarded(rows * columns - chosen.numel())
        raw = torch.zeros(rows, columns, dtype=image.dtype.raw)
        raw[inside] = image.flat[chosen]
        start, sizes, _offset, whole = target.box(state, FaultKind.OUT_OF_BOUNDS_WRITE)
        if not whole:
            raise scope.unsupported(_("'{op}' into a tile that is not inside its buffer").format(op=name))
        window: Window = target.window(start, sizes)
        target.write(window, state, lambda place: place.copy_(raw.reshape(sizes)))

    return run
