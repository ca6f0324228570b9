"""What of TileLang the simulator leaves out on purpose: the one list, for messages.

These are instructions of one generation of cards, written by hand: who writes them takes over from TileLang which
thread does what when. A walk tile by tile can't say whether that is right.
"""

from grader.messages import _

#: Operator, or a prefix of some -> what students call it.
NAMES: dict[str, str] = {
    "tl.ptx_": _("PTX instructions"),
    "tirx.ptx_": _("PTX instructions"),
    "tirx.mma_": _("tensor core instructions of one warp"),
    "tl.tileop.wgmma_gemm": _("T.wgmma_gemm, which doesn't wait for its result"),
    "tl.wait_wgmma": _("T.wait_wgmma"),
    "tl.warpgroup_": _("instructions of a warp group"),
    "tl.initialize_wgmma_descriptor": _("descriptors of tensor cores"),
    "tl.initialize_tcgen05_descriptor": _("descriptors of tensor cores"),
    "tl.increase_descriptor_offset": _("descriptors of tensor cores"),
    "tl.tileop.tcgen05": _("T.tcgen05_gemm"),
    "tl.tcgen05_": _("Blackwell's tensor cores"),
    "tl.tileop.gemm_blockscaled": _("T.gemm_blockscaled"),
    "tl.tileop.gemm_sp": _("T.gemm_sp, of sparse matrices"),
    "tl.tileop.async_copy": _("T.async_copy, which doesn't wait for its result"),
    "tl.tileop.tma_copy": _("T.tma_copy, which doesn't wait for its result"),
    "tl.tma_": _("instructions of the copy engine (TMA)"),
    "tl.create_tma": _("descriptors of the copy engine (TMA)"),
    "tl.fence_proxy_async": _("fences of the copy engine (TMA)"),
    "tl.mbarrier": _("barriers in shared memory (mbarrier)"),
    "tirx.ptx_arrive_barrier": _("barriers in shared memory (mbarrier)"),
    "tl.named_barrier": _("named barriers"),
    "tl.warp_reduce": _("reductions over the threads of a warp"),
    "tl.shfl": _("shuffles between the threads of a warp"),
    "tirx.tvm_warp_": _("shuffles between the threads of a warp"),
    "tl.any_sync": _("votes of the threads of a warp"),
    "tl.all_sync": _("votes of the threads of a warp"),
    "tl.ballot": _("votes of the threads of a warp"),
    "tl.match_": _("votes of the threads of a warp"),
    "tl.activemask": _("votes of the threads of a warp"),
    "tl.syncthreads_": _("votes of the threads of a block"),
    "tl.tl_shuffle_elect": _("the choice of one thread"),
    "tl.cluster_": _("clusters of blocks"),
    "tl.block_rank_in_cluster": _("clusters of blocks"),
    "tl.sync_grid": _("cooperative launches"),
    "tl.pdl_": _("programmatic launches"),
    "tl.ldg": _("loads of a given width"),
    "tl.stg": _("stores of a given width"),
    "tl.lds": _("loads of a given width"),
    "tl.sts": _("stores of a given width"),
    "tl.rng_": _("random numbers of the card"),
    "tirx.call_extern": _("T.call_extern: functions that are written in another language"),
    "tirx.call_pure_extern": _("T.call_extern: functions that are written in another language"),
    "tirx.tvm_call_": _("functions of the host"),
    "tirx.TVMBackend": _("functions of the host"),
    "tirx.anylist_": _("functions of the host"),
    "tirx.call_llvm_": _("T.call_llvm_intrin: instructions of another compiler"),
    "tirx.call_spirv_": _("instructions of another compiler"),
    "tirx.tvm_mma_sync": _("tensor core instructions of one warp"),
    "tirx.tvm_bmma_sync": _("tensor core instructions of one warp"),
    "tirx.tvm_load_matrix_sync": _("tensor core instructions of one warp"),
    "tirx.tvm_store_matrix_sync": _("tensor core instructions of one warp"),
    "tirx.tvm_fill_fragment": _("tensor core instructions of one warp"),
    "tirx.cuda.__shfl": _("shuffles between the threads of a warp"),
    "tirx.cuda.__activemask": _("votes of the threads of a warp"),
    "tl.get_lane_idx": _("the number of a thread in its warp"),
    "tl.get_warp_": _("the number of a thread's warp"),
    "tl.annotate_consumer_reg_alloc": _("numbers of registers"),
    "tl.annotate_producer_reg_dealloc": _("numbers of registers"),
    "tl.prefetch_tma_descriptor": _("descriptors of the copy engine (TMA)"),
    "tl.clc_": _("blocks that ask for further work (cluster launch control)"),
    "tl.deallocate_tmem": _("tensor memory"),
    "tirx.create_barriers": _("barriers in shared memory (mbarrier)"),
    "tirx.dma_": _("instructions of other processors"),
    "tirx.texture2d_": _("instructions of other processors"),
    "tirx.simdgroup_": _("instructions of other processors"),
    "tirx.make_filled_simdgroup_matrix": _("instructions of other processors"),
    "tirx.hip.": _("instructions of other processors"),
    "tirx.metal.": _("instructions of other processors"),
    "tirx.webgpu.": _("instructions of other processors"),
    "tl.cooperative_tensor_": _("instructions of other processors"),
    "tl.tvm_mfma": _("instructions of other processors"),
    "tl.tvm_rdna_": _("instructions of other processors"),
    "tl.ds_read_": _("instructions of other processors"),
    "tl.ascend_": _("instructions of other processors"),
    "tl.tileop.ascend_": _("instructions of other processors"),
    "tl.simd.": _("instructions of other processors"),
    "tl.access_ptr": _("addresses of memory"),
    "tirx.address_of": _("addresses of memory"),
    "tirx.tvm_access_ptr": _("addresses of memory"),
}
_LONGEST_FIRST = sorted(NAMES, key=len, reverse=True)


def explain(op: str) -> str:
    """What to say of an operator that the simulator hasn't: by name, and if it is left out on purpose, so."""
    name = next((NAMES[prefix] for prefix in _LONGEST_FIRST if op.startswith(prefix)), None)
    if name is None:
        return _("the operator '{op}'").format(op=op)
    return _("{name} ('{op}'), left out of the simulator on purpose").format(name=name, op=op)
