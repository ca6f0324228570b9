"""What is read out of compilers' texts: landmarks, widths of accesses, figures of ptxas; and what fits a card."""

import pytest

from grader.gpu.architectures import ARCHITECTURES, Misfit, misfits, occupancy
from grader.gpu.landmarks import Access, accesses, landmarks, renamed, sass_landmarks
from grader.gpu.resources import errors_of, parse

HEAD = 'extern "C" __global__ void __launch_bounds__(128, 1) main_kernel({parameters}) {{\n{body}\n}}\n'


def source(parameters: str, *body: str) -> str:
    return HEAD.format(parameters=parameters, body="\n".join(body))


@pytest.mark.parametrize(
    ("line", "landmark"),
    [
        ("tl::mma_sync<tl::DataType::kFloat16, 16, 8, 16>(c, a, b);", "mma"),
        ("tl::wgmma_ss<tl::DataType::kFloat16, 64, 128, 16>(a, b, c, 1);", "wgmma"),
        ("tl::ptx_ldmatrix_x4_trans((&(s0[0])), (&(B[0])));", "ldmatrix"),
        ("tl::cp_async_gs<16>((&(s0[0])), (&(g0[0])));", "cp.async"),
        ("tl::tma_load(g0_desc, mbarrier[0], (&(s0[0])), 0, 0);", "TMA load"),
        ("tl::tma_store(g0_desc, (&(s0[0])), 0, 0);", "TMA store"),
        ("mbarrier[((i0 % 3) + 3)].wait((((i0 % 6) / 3) ^ 1));", "mbarrier"),
        ("tl::warpgroup_reg_dealloc<24>();", "setmaxnreg"),
        ("__syncthreads();", "__syncthreads"),
        ("f6 = tl::AllReduce<tl::SumOp, 4, 1, 128>::run(f6);", "warp reduction"),
        ("AtomicAdd((&(g0[0])), f);", "atomic"),
    ],
)
def test_a_landmark_is_seen_in_the_body_alone(line, landmark):
    found = landmarks(f"#include <{landmark}>\n" + source("float* __restrict__ g0", line))
    assert found[landmark] == 1
    assert landmarks(source("float* __restrict__ g0", "g0[0] = 1;")) == {}


def test_waiting_for_a_tma_store_is_no_store():
    body = ("tl::tma_store_arrive();", "tl::tma_store_wait<0>();")
    assert "TMA store" not in landmarks(source("float* __restrict__ g0", *body))


def test_widths_of_global_accesses():
    text = source(
        "const half_t* __restrict__ g0, const float* __restrict__ g1, float* __restrict__ g2, "
        "fp8_e4_t* __restrict__ g3",
        "*(uint4*)(s0 + (((int)threadIdx.x) * 8)) = *(uint4*)(g0 + ((((int)blockIdx.x) * 8)));",
        "float x = (g1[(((int)threadIdx.x) + (i * 2))] + f[0]);",
        "*(float2*)(g2 + (((int)threadIdx.x) * 2)) = y;",
        "g2[((int)threadIdx.x)] = x;",
        "if (g2[0] == x) { }",
        "tl::cp_async_gs<16>((&(((half_t*)s0)[0])), (&(g0[(((int)threadIdx.x) * 8)])));",
        "tl::store_global_256(&(*(ulonglong4*)(g2 + (i * 8))), *(ulonglong4*)(f + 0));",
        "*(ulonglong4*)(f + 0) = tl::load_global_256(&(*(ulonglong4*)(g1 + (i * 8))));",
        "g3[0] = z;",
    )
    assert set(accesses(text)) == {
        Access("g0", False, 128, 2),
        Access("g1", False, 32, 1),
        Access("g1", False, 256, 1),
        Access("g2", True, 64, 1),
        Access("g2", True, 32, 1),
        Access("g2", True, 256, 1),
        Access("g2", False, 32, 1),
        Access("g3", True, 8, 1),
    }


def test_accesses_take_the_students_names():
    assert renamed((Access("g0", True, 32, 1),), {"g0": "C"}) == (Access("C", True, 32, 1),)


def test_landmarks_of_machine_code():
    listing = """
        /*0a10*/  HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0a20*/  LDSM.16.MT88.4 R8, [R2] ;
        /*0a30*/  LDGSTS.E.BYPASS.128 [R3], [R4.64] ;
        /*0a40*/  LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0a50*/  STL [R1+0x10], R5 ;
        /*0a60*/  BAR.SYNC.DEFER_BLOCKING 0x0 ;
    """
    assert sass_landmarks(listing) == {
        "mma": 1,
        "ldmatrix": 1,
        "cp.async": 1,
        "barrier": 1,
        "128-bit global read": 1,
        "local memory (spills)": 1,
    }


SPILLING = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_80'
ptxas info    : Function properties for main_kernel
    304 bytes stack frame, 580 bytes spill stores, 584 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 304 bytes cumulative stack size, 368 bytes cmem[0]
ptxas info    : Compile time = 54.790 ms
"""

STATIC = """
ptxas info    : 9 bytes gmem
ptxas info    : Compiling entry function 'main_kernel' for 'sm_90a'
ptxas info    : Function properties for main_kernel
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 240 registers, used 1 barriers, 1024 bytes smem
"""


def test_ptxas_figures_are_read():
    found = parse(SPILLING)
    assert (found.registers, found.stack, found.spill_stores, found.spill_loads) == (32, 304, 580, 584)
    assert found.shared == 0
    assert (parse(STATIC).registers, parse(STATIC).shared) == (240, 1024)


def test_no_figures_are_no_zero():
    with pytest.raises(ValueError, match="no figures"):
        parse("ptxas info    : 0 bytes gmem\n")


def test_errors_come_without_what_is_around_them():
    output = "kernel.cu(3): warning #1: odd\n  x\nkernel.cu(7): error: no such thing\n1 error detected\n"
    assert errors_of(output).splitlines() == ["kernel.cu(7): error: no such thing", "1 error detected"]
    assert errors_of("Killed\n") == "Killed"


# What fits a card


@pytest.mark.parametrize(
    ("arch", "threads", "shared", "registers", "blocks", "limits"),
    [
        ("sm_80", 128, 48 * 1024, 224, 2, ("registers",)),  # 4 warps of 7168 registers: 65536 // 28672
        ("sm_80", 128, 48 * 1024, None, 3, ("shared memory",)),  # 164 KiB // (48 + 1) KiB
        ("sm_75", 256, 32 * 1024, 32, 2, ("shared memory",)),  # Turing keeps nothing for itself
        ("sm_86", 1024, 0, 32, 1, ("threads",)),
        ("sm_90a", 32, 0, 16, 32, ("blocks",)),
        ("sm_120a", 128, 0, 255, 2, ("registers",)),  # 255 × 32 rounds up to 8192 a warp
        ("sm_80", 33, 0, 255, 4, ("registers",)),  # two warps
    ],
)
def test_occupancy(arch, threads, shared, registers, blocks, limits):
    found = occupancy(ARCHITECTURES[arch], threads, shared, registers)
    assert (found.blocks, found.limits) == (blocks, limits)


def test_what_no_card_of_the_kind_can_launch():
    ampere = ARCHITECTURES["sm_86"]
    assert misfits(ampere, 1024, 99 * 1024, (2**31 - 1, 65_535, None)) == []
    assert misfits(ampere, 1056, 99 * 1024 + 1, (1, 65_536, 1)) == [
        Misfit("shared memory", 99 * 1024 + 1, 99 * 1024),
        Misfit("threads", 1056, 1024),
        Misfit("grid", 65_536, 65_535),
    ]
