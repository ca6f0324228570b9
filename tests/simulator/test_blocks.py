"""Running some blocks of a kernel only."""

import pytest
import tilelang.language as T
import torch

from grader.simulator import FaultKind, NoSuchBlock, run

ROWS, COLUMNS = 24, 40


def tiles(guard=True, reach=8):
    """Y = X + 1 by tiles of 8 x 8; a block writes ``reach`` columns."""

    @T.prim_func
    def main(X: T.Tensor((ROWS, COLUMNS), "float32"), Y: T.Tensor((ROWS, COLUMNS), "float32")):
        with T.Kernel(COLUMNS // 8, ROWS // 8, threads=32) as (bx, by):
            for i, j in T.Parallel(8, reach):
                if not guard or bx * 8 + j < COLUMNS:
                    Y[by * 8 + i, bx * 8 + j] = X[by * 8 + i, bx * 8 + j] + 1.0

    return main


def test_only_these_blocks_run_and_what_others_leave_out_is_no_fault(read):
    x, y = torch.randn(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)
    done = run(read(tiles()), [x, y], outputs=[1], blocks=[(4, 0, 0), (1, 2, 0)])
    expected = torch.zeros(ROWS, COLUMNS)
    for rows, columns in ((slice(0, 8), slice(32, 40)), (slice(16, 24), slice(8, 16))):
        expected[rows, columns] = x[rows, columns] + 1
    assert torch.equal(y, expected)
    assert done.faults == ()
    assert done.written == ()


@pytest.mark.parametrize(("block", "faults"), [((0, 0, 0), set()), ((4, 0, 0), {FaultKind.OUT_OF_BOUNDS_WRITE})])
def test_a_fault_is_seen_in_the_block_that_has_it(read, block, faults):
    kernel = read(tiles(guard=False, reach=9))
    found = run(kernel, [torch.randn(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)], outputs=[1], blocks=[block])
    assert {fault.kind for fault in found.faults} - {FaultKind.OUT_OF_BOUNDS_READ} == faults
    assert all(fault.block == block for fault in found.faults)


@pytest.mark.parametrize(("blocks", "races"), [([(0, 0, 0), (1, 0, 0)], 1), ([(0, 0, 0), (2, 0, 0)], 0)])
def test_neighbours_that_write_the_same_elements_race(read, blocks, races):
    found = run(
        read(tiles(reach=12)),
        [torch.randn(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)],
        outputs=[1],
        blocks=blocks,
    )
    assert [fault.kind for fault in found.faults] == [FaultKind.RACE] * races


@pytest.mark.parametrize("block", [(5, 0, 0), (0, 3, 0), (0, 0, 1), (-1, 0, 0)])
def test_a_block_outside_of_the_grid_is_an_error(read, block):
    with pytest.raises(NoSuchBlock):
        run(read(tiles()), [torch.randn(ROWS, COLUMNS), torch.zeros(ROWS, COLUMNS)], blocks=[block])
