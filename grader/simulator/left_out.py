"""What of TileLang the simulator leaves out on purpose: the one list, for messages.

These are instructions of one generation of cards, written by hand: who writes them takes over from TileLang which
thread does what when. A walk tile by tile can't say whether that is right.
"""

from grader.messages import _

#: Operator, or a prefix of some -> what students call it.
NAMES: dict[str, str] = {
    "tl.ptx_": "PTX instructions",
    "tirx.ptx_": "PTX instructions",
    "tl.tvm_mma": "tensor core instructions of one warp",
    "tl.mma_": "tensor core instructions of one warp",
    "tirx.mma_": "tensor core instructions of one warp",
    "tl.tileop.wgmma_gemm": "T.wgmma_gemm, which doesn't wait for its result",
    "tl.wait_wgmma": "T.wait_wgmma",
    "tl.warpgroup_": "instructions of a warp group",
    "tl.wgmma_": "instructions of a warp group",
    "tl.initialize_wgmma_descriptor": "descriptors of tensor cores",
    "tl.initialize_tcgen05_descriptor": "descriptors of tensor cores",
    "tl.increase_descriptor_offset": "descriptors of tensor cores",
    "tl.tileop.tcgen05": "T.tcgen05_gemm",
    "tl.tcgen05_": "Blackwell's tensor cores",
    "tl.tileop.gemm_blockscaled": "T.gemm_blockscaled",
    "tl.tileop.gemm_sp": "T.gemm_sp, of sparse matrices",
    "tl.tileop.async_copy": "T.async_copy, which doesn't wait for its result",
    "tl.tileop.tma_copy": "T.tma_copy, which doesn't wait for its result",
    "tl.tma_": "instructions of the copy engine (TMA)",
    "tl.create_tma": "descriptors of the copy engine (TMA)",
    "tl.fence_proxy_async": "fences of the copy engine (TMA)",
    "tl.mbarrier": "barriers in shared memory (mbarrier)",
    "tl.get_mbarrier": "barriers in shared memory (mbarrier)",
    "tl.create_list_of_mbarrier": "barriers in shared memory (mbarrier)",
    "tirx.ptx_arrive_barrier": "barriers in shared memory (mbarrier)",
    "tl.named_barrier": "named barriers",
    "tl.warp_reduce": "reductions over the threads of a warp",
    "tl.shfl": "shuffles between the threads of a warp",
    "tirx.tvm_warp_": "shuffles between the threads of a warp",
    "tl.any_sync": "votes of the threads of a warp",
    "tl.all_sync": "votes of the threads of a warp",
    "tl.ballot": "votes of the threads of a warp",
    "tl.match_": "votes of the threads of a warp",
    "tl.activemask": "votes of the threads of a warp",
    "tl.syncthreads_": "votes of the threads of a block",
    "tl.tl_shuffle_elect": "the choice of one thread",
    "tl.shuffle_elect": "the choice of one thread",
    "tl.cluster_": "clusters of blocks",
    "tl.clusterlaunch": "clusters of blocks",
    "tl.block_rank_in_cluster": "clusters of blocks",
    "tl.sync_grid": "cooperative launches",
    "tl.pdl_": "programmatic launches",
    "tl.set_max_nreg": "numbers of registers",
    "tl.no_set_max_nreg": "numbers of registers",
    "tl.ldg": "loads of a given width",
    "tl.stg": "stores of a given width",
    "tl.lds": "loads of a given width",
    "tl.sts": "stores of a given width",
    "tl.rng_": "random numbers of the card",
    "tirx.call_extern": "T.call_extern: functions that are written in another language",
    "tirx.call_pure_extern": "T.call_extern: functions that are written in another language",
    "tirx.call_packed": "functions of the host",
    "tirx.tvm_call_packed": "functions of the host",
    "tl.access_ptr": "addresses of memory",
    "tirx.address_of": "addresses of memory",
    "tirx.tvm_access_ptr": "addresses of memory",
}
_LONGEST_FIRST = sorted(NAMES, key=len, reverse=True)


def explain(op: str) -> str:
    """What to say of an operator that the simulator hasn't: by name, and if it is left out on purpose, so."""
    name = next((NAMES[prefix] for prefix in _LONGEST_FIRST if op.startswith(prefix)), None)
    if name is None:
        return _("the operator '{op}'").format(op=op)
    return _("{name} ('{op}'), which TileLang leaves to you and the simulator leaves out").format(
        name=_(name), op=op
    )
