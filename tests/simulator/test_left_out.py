"""What the simulator leaves out on purpose, by name."""

import pytest
import tilelang.language as T
import torch

from grader.simulator import Unsupported, run
from grader.simulator.left_out import NAMES, explain


def test_every_name_on_the_list_is_tilelangs():
    from tilelang import tvm

    registered = set(tvm.ir.Op.list_op_names())
    assert [prefix for prefix in NAMES if not any(op.startswith(prefix) for op in registered)] == []


def test_an_operator_that_is_not_on_the_list_is_named_all_the_same():
    assert explain("tl.unheard_of") == "the operator 'tl.unheard_of'"
    assert "on purpose" in explain("tl.tma_load_im2col")


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        (lambda s, x: T.call_extern("handle", "f", s[0, 0]), "another language"),
        (lambda s, x: T.wgmma_gemm(s, s, x), "T.wgmma_gemm"),
        (lambda s, x: T.wait_wgmma(0), "T.wait_wgmma"),
        (lambda s, x: T.ptx_wait_group(0), "PTX"),
        (lambda s, x: T.fence_proxy_async(), "copy engine"),
        (lambda s, x: T.tma_store_arrive(), "copy engine"),
        (lambda s, x: T.sync_grid(), "cooperative"),
        (lambda s, x: T.pdl_sync(), "programmatic"),
        (lambda s, x: T.warp_reduce_sum(s[0, 0]), "warp"),
    ],
)
def test_operators_are_refused_by_name_and_line(read, line_of, statement, named):
    @T.prim_func
    def main(Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128) as _bx:
            s = T.alloc_shared((64, 64), "float16")
            x = T.alloc_fragment((64, 64), "float32")
            T.clear(s)
            T.clear(x)
            T.evaluate(statement(s, x))  # here
            T.copy(s, Y)

    with pytest.raises(Unsupported, match=named) as caught:
        run(read(main), [torch.zeros(64, 64).half()])
    assert caught.value.line.number == line_of("here")
