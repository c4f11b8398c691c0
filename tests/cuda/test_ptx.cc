/* test_ptx.cc - the interpreter of PTX: that lanes, warps and blocks run as on a GPU whatever the placement of the
 * code, that memory is touched as said, and that it refuses what it does not know. Instructions that compute:
 * test_ptx_alu.cc. */
#include "ptx_try.h"

#include <setjmp.h>
#include <stdarg.h>

extern "C" {
#include <cmocka.h>
}
#include "mistakes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace {

using words = std::vector<uint32_t>;

int setup(void **) {
    cuda_on_host_reset();
    return 0;
}

/* The words that `body` leaves in `out`. */
words result_of(const std::string &body, unsigned grid, unsigned block, words in, size_t n) {
    words out(n, 0xdeadbeef);
    ptx_try::run(body, grid, block, in, out);
    return out;
}
/* Each thread stores %r4. */
const char *const store_r4 = "add.s64 %rd3, %rd2, %rd3;\nst.global.u32 [%rd3], %r4;\n";

void assert_words(const words &wanted, const words &found) {
    assert_int_equal(wanted.size(), found.size());
    for (size_t i = 0; i < wanted.size(); i++)
        if (wanted[i] != found[i]) fail_msg("word %zu: wanted 0x%x, found 0x%x", i, wanted[i], found[i]);
}

/* >>lanes that part and meet. A program is blocks of code, each of which says where it goes: their order must not
 * matter. */
using blocks = std::vector<std::string>;

void in_every_order(blocks code, const words &wanted, unsigned grid, unsigned block) {
    std::sort(code.begin() + 1, code.end());
    do {
        std::string body;
        for (const std::string &part : code) body += part;
        for (uint64_t seed = 1; seed < 4; seed++) {
            cuda_on_host_set_seed(seed);
            assert_words(wanted, result_of(body, grid, block, {0}, wanted.size()));
        }
    } while (std::next_permutation(code.begin() + 1, code.end()));
}

void test_loops_and_branches(void **) {
    words wanted(96);
    for (uint32_t i = 0; i < wanted.size(); i++) {
        uint32_t x = i + 1, steps = 0, odd = 0;
        for (; x > 1; steps++) {
            if (x % 2)
                x = 3 * x + 1, odd += steps % 4 ? 0 : steps;
            else
                x /= 2;
        }
        wanted[i] = steps + 1000 * odd;
    }
    in_every_order({"add.s32 %r4, %r2, 1;\nmov.u32 %r5, 0;\nmov.u32 %r6, 0;\nbra.uni LOOP;\n",
                    "LOOP:\nsetp.le.u32 %p1, %r4, 1;\n@%p1 bra DONE;\nand.b32 %r7, %r4, 1;\nsetp.eq.s32 %p2, %r7, "
                    "0;\n@%p2 bra EVEN;\n"
                    "mad.lo.s32 %r4, %r4, 3, 1;\nand.b32 %r7, %r5, 3;\nsetp.ne.s32 %p3, %r7, 0;\n@%p3 bra "
                    "NEXT;\nbra.uni FOURTH;\n",
                    "FOURTH:\nadd.s32 %r6, %r6, %r5;\nbra.uni NEXT;\n", "EVEN:\nshr.u32 %r4, %r4, 1;\nbra.uni NEXT;\n",
                    "NEXT:\nadd.s32 %r5, %r5, 1;\nbra LOOP;\n",
                    std::string("DONE:\nmad.lo.s32 %r4, %r6, 1000, %r5;\n") + store_r4 + "ret;\n"},
                   wanted, 3, 32);
}

/* Each side of a branch shuffles among its own lanes, in a loop; all meet at a vote. */
void test_sides_that_shuffle(void **) {
    words wanted(64);
    for (uint32_t i = 0; i < 64; i++) {
        bool third = i % 32 % 3 == 0;
        uint32_t rounds = third ? 3 : 5, first = third ? 0 : 1;
        wanted[i] = i % 32 * 100 + rounds * (i / 32 * 32 + first) + 0x10000;
    }
    std::string shuffle =
        "shfl.sync.idx.b32 %r10|%p5, %r2, %r9, 31, %r8;\nadd.s32 %r11, %r11, %r10;\nadd.s32 %r12, %r12, -1;\n"
        "setp.ne.s32 %p6, %r12, 0;\n";
    in_every_order(
        {"mov.u32 %r5, %laneid;\nrem.u32 %r6, %r5, 3;\nsetp.eq.s32 %p1, %r6, 0;\nvote.sync.ballot.b32 %r7, %p1, -1;\n"
         "not.b32 %r13, %r7;\nmov.u32 %r11, 0;\n@%p1 bra THIRD;\nbra.uni OTHER;\n",
         "THIRD:\nmov.b32 %r8, %r7;\nmov.u32 %r9, 0;\nmov.u32 %r12, 3;\nbra.uni AGAIN3;\n",
         "AGAIN3:\n" + shuffle + "@%p6 bra AGAIN3;\nbra.uni JOIN;\n",
         "OTHER:\nmov.b32 %r8, %r13;\nmov.u32 %r9, 1;\nmov.u32 %r12, 5;\nbra.uni AGAIN5;\n",
         "AGAIN5:\n" + shuffle + "@%p6 bra AGAIN5;\nbra.uni JOIN;\n",
         std::string("JOIN:\nbar.warp.sync -1;\nsetp.lt.u32 %p7, %r5, 32;\nvote.sync.all.pred %p8, %p7, -1;\n"
                     "selp.u32 %r14, 65536, 0, %p8;\nmad.lo.s32 %r4, %r5, 100, %r11;\nadd.s32 %r4, %r4, %r14;\n") +
             store_r4 + "ret;\n"},
        wanted, 1, 64);
}

/* Two groups of lanes at one instruction, each with its own mask. */
void test_masks_of_one_instruction(void **) {
    words wanted(32), found;
    for (uint32_t i = 0; i < 32; i++) wanted[i] = i / 16 * 16 + 3;
    found = result_of(std::string("setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r5, 65535, -65536, %p1;\nand.b32 %r6, %r1, "
                                  "16;\nadd.s32 %r6, %r6, 3;\n"
                                  "shfl.sync.idx.b32 %r4, %r1, %r6, 31, %r5;\n") +
                          store_r4,
                      1, 32, {0}, 32);
    assert_words(wanted, found);
}

/* Lane 0 waits for what lane 1 writes further down: it must not starve it. */
void test_lanes_that_wait_for_each_other(void **) {
    words wanted(32, 7);
    words found =
        result_of(std::string("setp.ne.s32 %p1, %r1, 0;\n@%p1 bra OTHERS;\nWAIT:\nld.relaxed.gpu.u32 %r5, [%rd1];\n"
                              "setp.ne.s32 %p2, %r5, 7;\n@%p2 bra WAIT;\nbra.uni DONE;\nOTHERS:\nmov.u32 %r6, 7;\n"
                              "st.relaxed.gpu.u32 [%rd1], %r6;\nDONE:\nld.relaxed.gpu.u32 %r4, [%rd1];\n") +
                      store_r4,
                  1, 32, {0}, 32);
    assert_words(wanted, found);
}

/* >>shuffles and votes, as CUDA's functions are described */
int read_lane(int mode, int lane, int b, int width) { /* -1: its own */
    int place = lane % width;
    if (mode == 0) return place >= b ? lane - b : -1;
    if (mode == 1) return place + b < width ? lane + b : -1;
    if (mode == 2) return (lane ^ b) < (lane / width + 1) * width ? lane ^ b : -1;
    return lane / width * width + b % width;
}

void test_shuffles(void **) {
    const char *const modes[] = {"up", "down", "bfly", "idx"};
    for (int mode = 0; mode < 4; mode++) {
        for (int width = 1; width <= 32; width *= 2) {
            int c = (32 - width) << 8 | (mode ? 31 : 0);
            words in(32), wanted;
            for (int i = 0; i < 32; i++) in[static_cast<size_t>(i)] = static_cast<uint32_t>((i * 7 + width) % 32);
            for (int i = 0; i < 32; i++) {
                int from = read_lane(mode, i, static_cast<int>(in[static_cast<size_t>(i)]), width);
                wanted.push_back(static_cast<uint32_t>((from < 0 ? i : from) + 1000 + (from < 0 ? 0 : 100000)));
            }
            std::string body = "add.s64 %rd4, %rd1, %rd3;\nld.global.u32 %r5, [%rd4];\nadd.s32 %r6, %r1, 1000;\n"
                               "shfl.sync." +
                               std::string(modes[mode]) + ".b32 %r4|%p1, %r6, %r5, " + std::to_string(c) +
                               ", -1;\n"
                               "selp.u32 %r7, 100000, 0, %p1;\nadd.s32 %r4, %r4, %r7;\n" +
                               store_r4;
            assert_words(wanted, result_of(body, 1, 32, in, 32));
        }
    }
}

void test_votes(void **) {
    const uint32_t votes[] = {0, 0xffffffff, 1, 0x80000000, 0x00ff00ff};
    for (uint32_t vote : votes) {
        uint32_t wanted = (vote != 0) | (vote == 0xffffffff) << 1 | (!vote || vote == 0xffffffff) << 2;
        std::string body =
            "ld.global.u32 %r5, [%rd1];\nshr.u32 %r5, %r5, %r1;\nand.b32 %r5, %r5, 1;\nsetp.ne.s32 %p1, %r5, 0;\n"
            "vote.sync.any.pred %p2, %p1, -1;\nvote.sync.all.pred %p3, %p1, -1;\nvote.sync.uni.pred %p4, %p1, -1;\n"
            "vote.sync.ballot.b32 %r6, %p1, -1;\nselp.u32 %r7, 1, 0, %p2;\nselp.u32 %r8, 2, 0, %p3;\nselp.u32 %r9, 4, "
            "0, %p4;\n"
            "or.b32 %r4, %r7, %r8;\nor.b32 %r4, %r4, %r9;\nxor.b32 %r4, %r4, %r6;\n";
        assert_words(words(32, wanted ^ vote), result_of(body + store_r4, 1, 32, {vote}, 32));
    }
}

/* >>blocks */
/* Each thread reads what one of another warp wrote before the barrier, eight times. */
void test_barriers(void **) {
    words in(256 * 2), wanted(256);
    for (uint32_t i = 0; i < 256; i++) wanted[i] = i / 128 * 128 + (i % 128 + 8 * 33) % 128;
    for (uint64_t seed = 1; seed < 20; seed++) {
        cuda_on_host_set_seed(seed);
        std::string body = "mov.u32 %r5, 0;\nmul.lo.s32 %r6, %r3, 1024;\ncvt.u64.u32 %rd5, %r6;\nadd.s64 %rd5, %rd1, "
                           "%rd5;\n" /* the block's */
                           "add.s32 %r7, %r1, 33;\nand.b32 %r7, %r7, 127;\nmov.b32 %r4, %r2;\n"
                           "ROUND:\nand.b32 %r8, %r5, 1;\nmul.lo.s32 %r8, %r8, 512;\n"
                           "mad.lo.s32 %r9, %r1, 4, %r8;\ncvt.u64.u32 %rd6, %r9;\nadd.s64 %rd6, %rd5, "
                           "%rd6;\nst.global.u32 [%rd6], %r4;\n"
                           "bar.sync 0;\n"
                           "mad.lo.s32 %r9, %r7, 4, %r8;\ncvt.u64.u32 %rd6, %r9;\nadd.s64 %rd6, %rd5, "
                           "%rd6;\nld.global.u32 %r4, [%rd6];\n"
                           "add.s32 %r5, %r5, 1;\nsetp.lt.u32 %p1, %r5, 8;\n@%p1 bra ROUND;\n";
        assert_words(wanted, result_of(body + store_r4, 2, 128, in, 256));
    }
}

/* Each thread votes; names within braces are others. */
void test_votes_of_a_block(void **) {
    for (uint32_t voter : {0u, 1u, 63u, 95u, 96u}) { /* 96: none */
        words wanted(192);
        for (uint32_t i = 0; i < 192; i++) wanted[i] = (voter < 96) | (voter == 96 ? 2u : 0u) | 4;
        std::string body =
            "ld.global.u32 %r5, [%rd1];\nsetp.eq.s32 %p1, %r1, %r5;\nsetp.ne.s32 %p2, %r1, %r5;\nmov.u32 %r7, 4;\n"
            "{\n.reg .pred %p3;\n.reg .b32 %r7, %r8;\nbar.red.or.pred %p3, 0, %p1;\nselp.u32 %r7, 1, 0, %p3;\nmov.b32 "
            "%r4, %r7;\n}\n"
            "bar.red.and.pred %p3, 0, %p2;\nselp.u32 %r6, 2, 0, %p3;\nor.b32 %r4, %r4, %r6;\nor.b32 %r4, %r4, %r7;\n";
        assert_words(wanted, result_of(body + store_r4, 2, 96, {voter}, 192));
    }
}

void test_atomics(void **) {
    words out(8);
    std::vector<uint64_t> in = {0, 0, 0, 0, ~0ull, 0};
    ptx_try::run(
        "atom.add.acq_rel.gpu.u32 %r4, [%rd1], 1;\nsetp.eq.s32 %p1, %r4, 255;\nmov.b64 %rd5, 4294967296;\n"
        "atom.add.relaxed.gpu.u64 %rd4, [%rd1+8], %rd5;\n"
        "LOCK:\natom.cas.acquire.gpu.b64 %rd6, [%rd1+16], 0, 1;\nsetp.ne.s64 %p2, %rd6, 0;\n@%p2 bra LOCK;\n"
        "ld.global.u32 %r5, [%rd1+24];\nadd.s32 %r5, %r5, 3;\nst.global.u32 [%rd1+24], %r5;\n" /* by one at a time */
        "atom.exch.release.gpu.b64 %rd7, [%rd1+16], 0;\nshl.b32 %r6, 1, %r3;\nnot.b32 %r7, %r6;\n"
        "atom.global.and.b32 %r8, [%rd1+32], %r7;\natom.or.b32 %r9, [%rd1+40], %r6;\n"
        "@!%p1 bra END;\nst.global.u32 [%rd2], %r4;\nEND:\n",
        8, 32, in, out);
    assert_true(in[0] == 256 && in[1] == 256ull << 32 && in[2] == 0 && in[3] == 768 && in[4] == ~0xffull &&
                in[5] == 0xff);
    assert_int_equal(255, out[0]);
}

/* Block 0 waits for the last one; both are resident. */
void test_blocks_that_wait_for_each_other(void **) {
    std::string body = "setp.ne.s32 %p1, %r3, 0;\n@%p1 bra SET;\nWAIT:\nmov.u32 %r5, 100;\nnanosleep.u32 %r5;\n"
                       "ld.acquire.gpu.u32 %r4, [%rd1];\nsetp.eq.s32 %p2, %r4, 0;\n@%p2 bra WAIT;\nbra.uni END;\n"
                       "SET:\nmov.u32 %r4, 5;\nst.release.gpu.u32 [%rd1], %r4;\nEND:\n";
    for (uint64_t seed = 1; seed < 10; seed++) {
        cuda_on_host_set_seed(seed);
        assert_words(words(64, 5), result_of(body + store_r4, 2, 32, {0}, 64));
    }
}

/* The order in which threads take numbers is the seed's. */
void test_a_seed_is_a_schedule(void **) {
    std::map<uint64_t, words> orders;
    std::set<words> different;
    for (int again = 0; again < 2; again++) {
        for (uint64_t seed = 1; seed < 6; seed++) {
            cuda_on_host_set_seed(seed);
            words found =
                result_of(std::string("atom.add.relaxed.gpu.u32 %r4, [%rd1], 1;\n") + store_r4, 8, 64, {0}, 512);
            different.insert(found);
            if (again) assert_words(orders[seed], found);
            orders[seed] = found;
            std::sort(found.begin(), found.end());
            for (uint32_t i = 0; i < 512; i++) assert_int_equal(i, found[i]);
        }
    }
    assert_true(different.size() > 2);
}

void test_a_lost_device(void **) {
    words in(1), out(1);
    auto m = ptx_try::read(ptx_try::text_of("FOREVER:\nbra FOREVER;\n"));
    for (int after = 0; after < 2; after++) {
        cuda_on_host_reset();
        ptx_on_host::arguments a;
        a.add(in.data()), a.add(out.data());
        assert_int_equal(cudaSuccess,
                         ptx_on_host::launch_entry(*m, {"k", cuda_on_host::here(), 5, 64, nullptr}, std::move(a)));
        if (after) usleep(2000);
        cuda_on_host_lose_device(0);
        assert_int_equal(cudaErrorLaunchFailure, cudaDeviceSynchronize());
    }
}

void test_failures_on_request(void **) {
    words in(1), out(1);
    auto m = ptx_try::read(ptx_try::text_of(""));
    uint64_t before = cuda_on_host_count("cudaLaunchKernel");
    for (int i = 0; i < 2; i++) {
        ptx_on_host::arguments a;
        a.add(in.data()), a.add(out.data());
        cuda_on_host_fail_named("cudaLaunchKernel", i == 0, cudaErrorLaunchFailure);
        assert_int_equal(i == 0 ? cudaErrorLaunchFailure : cudaSuccess,
                         ptx_on_host::launch_entry(*m, {"k", cuda_on_host::here(), 1, 32, nullptr}, std::move(a)));
    }
    assert_int_equal(cudaSuccess, cudaDeviceSynchronize());
    assert_int_equal(2, cuda_on_host_count("cudaLaunchKernel") - before);
    assert_int_equal(1, ptx_on_host::report_of(*m).launches);
}

/* >>memory */
void test_loads_and_stores(void **) {
    const char *const loads[] = {"ld",
                                 "ld.global",
                                 "ld.global.cg",
                                 "ld.global.ca",
                                 "ld.global.cs",
                                 "ld.global.lu",
                                 "ld.global.cv",
                                 "ld.global.nc",
                                 "ld.global.ca.nc",
                                 "ld.cg",
                                 "ld.weak.global",
                                 "ld.volatile.global",
                                 "ld.relaxed.sys",
                                 "ld.relaxed.cta.global",
                                 "ld.acquire.gpu"};
    const char *const stores[] = {
        "st",           "st.global", "st.global.wb", "st.global.cg",   "st.global.cs",
        "st.global.wt", "st.weak",   "st.volatile",  "st.relaxed.gpu", "st.release.sys.global"};
    struct {
        const char *type, *load, *store;
        unsigned bytes;
        bool vector;
    } const types[] = {{".u32", "%r10", "%r10", 4, false},
                       {".f32", "%f10", "%f10", 4, false},
                       {".b64", "%rd10", "%rd10", 8, false},
                       {".v2.f32", "{%f10, %f11}", "{%f10, %f11}", 8, true},
                       {".v2.b64", "{%rd10, %rd11}", "{%rd10, %rd11}", 16, true},
                       {".v4.u32", "{%r10, %r11, %r12, %r13}", "{%r10, %r11, %r12, %r13}", 16, true},
                       {".v4.f32", "{%f10, %f10, %f10, %f13}", "{%f13, %f10, %f13, %f10}", 16, true}};
    words in(32 * 4);
    for (uint32_t i = 0; i < in.size(); i++) in[i] = 0x01010101 * i + 77;
    unsigned checked = 0;
    for (auto type : types) {
        for (size_t i = 0; i < std::size(loads) + std::size(stores); i++) {
            std::string load = i < std::size(loads) ? loads[i] : "ld",
                        store = i < std::size(loads) ? "st" : stores[i - std::size(loads)];
            bool strong = (load + store).find_first_of("xv") != std::string::npos ||
                          (load + store).find("acq") != std::string::npos ||
                          (load + store).find("rel") != std::string::npos;
            if (type.vector && strong && load != "ld.global.cv") continue;
            std::string body = "shl.b64 %rd3, %rd3, 2;\nadd.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n" + load +
                               type.type + " " + type.load + ", [%rd4];\n" + store + type.type + " [%rd5], " +
                               type.store + ";\n";
            words found = result_of(body, 1, 32, in, in.size());
            for (size_t k = 0; k < in.size(); k++) {
                bool repeated = !strcmp(type.type, ".v4.f32");
                uint32_t wanted = repeated                 ? in[k / 4 * 4 + (k % 2 ? 2 : 3)]
                                  : k % 4 < type.bytes / 4 ? in[k]
                                                           : 0xdeadbeef;
                if (found[k] != wanted)
                    fail_msg("%s and %s of %s: word %zu: wanted 0x%x, found 0x%x", load.c_str(), store.c_str(),
                             type.type, k, wanted, found[k]);
            }
            checked++;
        }
    }
    assert_true(checked > 100);
}

/* Registers may be wider than what is loaded, which is then extended as its type says. */
void test_wide_registers(void **) {
    std::vector<uint64_t> out(7);
    words in = {0x80000001};
    ptx_try::run(
        "ld.global.u32 %rd4, [%rd1];\nst.global.u64 [%rd2], %rd4;\nld.s32 %rd5, [%rd1];\nst.u64 [%rd2+8], %rd5;\n"
        "ld.relaxed.gpu.b32 %rd6, [%rd1];\nst.u64 [%rd2+16], %rd6;\nadd.s64 %rd7, %rd5, -1;\nst.u32 [%rd2+24], %rd7;\n"
        "st.relaxed.sys.u32 [%rd2+28], %rd4;\nld.param.u32 %rd8, [out+4];\nst.u64 [%rd2+32], %rd8;\n"
        "ld.u8 %rd8, [%rd1+3];\nst.u32 [%rd2+40], %rd8;\nld.global.nc.u8 %r10, [%rd1];\nst.u32 [%rd2+44], %r10;\n"
        "ld.global.u16 %r11, [%rd1+2];\nst.u32 [%rd2+48], %r11;\nld.u16 %rs4, [%rd1];\nst.global.wb.u16 [%rd2+52], "
        "%rs4;\n"
        "st.b16 [%rd2+54], %r11;\n",
        1, 32, in, out);
    uint64_t high = reinterpret_cast<uintptr_t>(out.data()) >> 32;
    assert_true(out[0] == 0x80000001 && out[1] == 0xffffffff80000001 && out[2] == 0x80000001);
    assert_true(out[3] == 0x8000000180000000 && out[4] == high && out[5] == 0x100000080);
    assert_true(out[6] == 0x8000000100008000);
}

/* >>entries and their parameters */
struct odd {
    uint8_t small;
    double wide;
    uint16_t half;
};
const char *const parameters_text =
    ".version 9.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry _Z1kILi4EEvj3oddPm(\n.param .u32 p0,\n.param .align 8 .b8 p1[24],\n.param .u64 p2\n)\n.maxntid "
    "64, 1, 1\n.minnctapersm 2\n{\n"
    ".reg .b32 %r<4>;\n.reg .b64 %rd<9>;\nld.param.u32 %r1, [p0];\nld.param.u64 %rd1, [p1+8];\nld.param.u64 %rd2, "
    "[p2];\n"
    "mov.b64 %rd3, p1;\nadd.s64 %rd3, %rd3, 4;\nld.param.u64 %rd4, [%rd3+4];\nst.global.u32 [%rd2], "
    "%r1;\nst.global.u64 [%rd2+8], %rd1;\n"
    "st.global.u64 [%rd2+16], %rd4;\nret;\n}\n.visible .entry never()\n{\n.pragma \"nounroll\";\nret;\n}\n";

cudaError_t launch_parameters(ptx::module &m, const char *name, unsigned threads, uint64_t *out, uint32_t first = 9) {
    ptx_on_host::arguments a;
    odd middle = {1, 2.5, 3};
    a.add(first), a.add(middle), a.add(out);
    return ptx_on_host::launch_entry(m, {name, cuda_on_host::here(), 1, threads, nullptr}, std::move(a));
}

void test_parameters(void **) {
    auto m = ptx_try::read(parameters_text);
    uint64_t out[3] = {0, 0, 0};
    double middle = 2.5;
    assert_int_equal(2, m->entries.size());
    assert_string_equal("sm_75", m->target.c_str());
    assert_int_equal(cudaSuccess, launch_parameters(*m, "(k<4>)", 64, out));
    assert_int_equal(cudaSuccess, cudaDeviceSynchronize());
    assert_true(out[0] == 9 && !memcmp(&out[1], &middle, 8) && out[2] == out[1]);
    ptx_on_host::report r = ptx_on_host::report_of(*m);
    assert_true(r.entries == 2 && r.entries_run == 1 && r.launches == 1 && r.instructions == 2 * 10 && r.lines == 11 &&
                r.lines_run == 10);
    assert_true(r.idle_entries == std::vector<std::string>{"never"} && r.idle_forms.empty() && r.forms == r.forms_run);
}

/* >>what is refused when the text is read */
struct {
    const char *body, *message;
} const refused[] = {
    {"ex2.approx.f32 %f4, %f5;", "PTX line 18: `ex2.approx.f32` rounds as the GPU likes"},
    {"add.f32 %f4, %f5, %f6;", "`add.f32` without a rounding may become part of an fma: compile with --fmad=false"},
    {"mul.f32 %f4, %f5, %f6;", "without a rounding"},
    {"add.rn.ftz.f32 %f4, %f5, %f6;", "makes subnormal floats 0"},
    {"div.full.f32 %f4, %f5, %f6;", "rounds as the GPU likes"},
    {"add.rz.f32 %f4, %f5, %f6;", "`add.rz.f32` is not known"},
    {"add.rn.f64 %f4, %f5, %f6;", "`add.rn.f64` is not known"},
    {"frobnicate.b32 %r4, %r5;", "`frobnicate.b32` is not known to this interpreter of PTX: add it"},
    {"ld.shared.u32 %r4, [%rd1];", "`ld.shared.u32` is not known"},
    {"ld.global.L2::128B.u32 %r4, [%rd1];", "`ld.global.L2::128B.u32` is not known"},
    {"ld.relaxed.u32 %r4, [%rd1];", "is not known"},
    {"ld.release.gpu.u32 %r4, [%rd1];", "is not known"},
    {"st.acquire.gpu.u32 [%rd1], %r4;", "is not known"},
    {"ld.relaxed.gpu.v2.u32 {%r4, %r5}, [%rd1];", "is not known"},
    {"ld.global.v4.u64 {%rd4, %rd5, %rd6, %rd7}, [%rd1];", "is not known"},
    {"atom.max.u32 %r4, [%rd1], 1;", "is not known"},
    {"mov.u32 %r4, %clock;", "`%clock` is not known"},
    {"mov.u32 %r4, %tid.y;", "`%tid.y` is not known"},
    {"add.s32 %r4, %tid.x, 1;", "`%tid.x` is no register"},
    {"add.s32 %r4, %r99, 1;", "`%r99` is no register of this entry"},
    {"add.s32 %rd4, %r5, 1;", "`%rd4` is not of the type"},
    {"add.s64 %rd4, %rd5, %r5;", "`%r5` is not of the type"},
    {"add.s32 %r4, %r5, 0f3F800000;", "is a float"},
    {"add.rn.f32 %f4, %f5, 1;", "`1` is no float"},
    {"add.s32 %r4, %r5, 1, 2;", "after its operands"},
    {"add.s32 %r4, %r5;", "expected `,`"},
    {"bar.sync 1;", "only barrier 0"},
    {"@%p1 bar.sync 0;", "under a predicate"},
    {"@%p1 shfl.sync.idx.b32 %r4, %r5, 0, 31, -1;", "under a predicate"},
    {"ld.global.u32 %r4, [in];", "only ld.param reaches"},
    {"bra NOWHERE;", "no label `NOWHERE`"},
    {"END:\nbra END;\n}\n.visible .entry j()\n{\nbra END;", "no label `END`"},
    {".local .align 8 .b8 depot[16];", "`.local` is not known"},
    {"{ .reg .b32 t; }\nadd.s32 %r4, t, 1;", "`t` is no register of this entry"},
    {"{ .reg .b32 t;", "the text ends within an entry"},
    {"HERE:\nHERE:\n", "label `HERE` again"},
    {"bar.red.or.pred %p4, 1, %p5;", "only barrier 0"},
    {"bar.red.popc.u32 %r4, 0, %p5;", "is not known"},
    {".reg .f64 %fd<4>;", "type `.f64` is not known"},
    {".reg .b32 %r<4>;", "again"},
    {"ret;\n}\n.func f()\n{\n", "`.func` is not known"},
    {"ret;\n}\n.global .u32 g;\n{\n", "`.global` is not known"},
    {"ret;\n}\n.visible .entry j()\n{\n@%p1 ret;\n}\n.visible .entry i()\n{\n", "is no register"},
    {"ret;\n}\n.visible .entry j()\n{\n.reg .b32 %r<4>;\nmov.u32 %r1, 0;\n}\n.visible .entry i()\n{\n",
     "does not end with"},
};

void test_unknown_text(void **) {
    for (auto each : refused) {
        std::string why;
        assert_null(ptx::read_module(ptx_try::text_of(each.body), &why).get());
        if (why.find(each.message) == std::string::npos)
            fail_msg("%s: wanted \"%s\", found \"%s\"", each.body, each.message, why.c_str());
    }
    for (const char *text : {"", ".version 9.0\n.target sm_90\n.address_size 32\n", ".version 9.0\n.entry k(\n",
                             ".visible .entry k() {", ".visible .entry k() {\n.pragma \"unroll\""}) {
        std::string why;
        assert_null(ptx::read_module(text, &why).get());
        assert_true(why.find("PTX line ") == 0);
    }
}

/* What nvcc made of frugal_cuda.cu is read. */
void test_our_own_text(void **) {
    if (!ptx_on_host::has_module()) {
        print_message("# SKIPPED there was no nvcc when this was built\n");
        skip();
    }
    ptx_on_host::report r = ptx_on_host::report_of(ptx_on_host::this_module());
    print_message("# %s\n", ptx_on_host::summary(ptx_on_host::this_module()).c_str());
    assert_true(r.entries > 0 && r.forms > 0 && r.lines > 0 && r.instructions == 0 &&
                r.idle_entries.size() == r.entries);
}

/* >>mistakes: each ends a process of its own, with a message */
void make(const std::string &body, unsigned grid = 1, unsigned block = 32) {
    static words in(1024), out(1024);
    ptx_try::run(body, grid, block, in, out);
}
void make_on_the_heap(const char *body, size_t n) {
    std::vector<uint32_t> in(n), out(n);
    ptx_try::run(body, 1, 32, in, out);
}
void launch_as(const char *name, unsigned threads) {
    uint64_t out[3];
    launch_parameters(*ptx_try::read(parameters_text), name, threads, out);
}
void launch_with_a_wide_first() {
    uint64_t out[3], first = 9;
    ptx_on_host::arguments a;
    odd middle = {1, 2.5, 3};
    a.add(first), a.add(middle), a.add(&out[0]);
    launch_entry(*ptx_try::read(parameters_text), {"k<4>", cuda_on_host::here(), 1, 32, nullptr}, std::move(a));
}
void launch_without_the_last() {
    ptx_on_host::arguments a;
    a.add(1u), a.add(odd{1, 2.5, 3});
    launch_entry(*ptx_try::read(parameters_text), {"k<4>", cuda_on_host::here(), 1, 32, nullptr}, std::move(a));
}
/* Each store comes when both streams are at it: what orders a stream's end before another's beginning orders no store.
 * The meeting is relaxed, and orders nothing. A thread that has stored does nothing more: ThreadSanitizer does not
 * report a race with a store that it no longer has in its history, and who waits in a kernel fills that. */
void race_of_streams() {
    static words in(1), out(32);
    cudaStream_t streams[2];
    auto m = ptx_try::read(ptx_try::text_of(std::string("atom.add.relaxed.gpu.u32 %r4, [%rd1], 1;\nMEET:\n"
                                                        "ld.relaxed.gpu.u32 %r5, [%rd1];\n"
                                                        "setp.lt.u32 %p1, %r5, 64;\n@%p1 bra MEET;\n") +
                                            store_r4));
    for (cudaStream_t &s : streams) {
        ptx_on_host::arguments a;
        a.add(in.data()), a.add(out.data());
        cudaStreamCreate(&s);
        ptx_on_host::launch_entry(*m, {"k", cuda_on_host::here(), 1, 32, s}, std::move(a));
    }
    cudaDeviceSynchronize();
}

const mistake mistakes[] = {
    {"a vector that is not aligned", "is not a multiple of 16", CHECKS,
     [] { make("and.b64 %rd4, %rd1, -16;\nld.global.v4.f32 {%f4, %f5, %f6, %f7}, [%rd4+8];\n"); }},
    {"a word that is not aligned", "is not a multiple of 4", CHECKS, [] { make("st.global.u32 [%rd1+2], %r1;\n"); }},
    {"an atomic that is not aligned", "is not a multiple of 8", CHECKS,
     [] { make("and.b64 %rd4, %rd1, -8;\natom.add.relaxed.gpu.u64 %rd5, [%rd4+4], 1;\n"); }},
    {"a null pointer", "a null pointer", CHECKS, [] { make("mov.u64 %rd4, 0;\nld.global.u32 %r4, [%rd4+16];\n"); }},
    {"an address of a parameter", "which only ld.param reaches", CHECKS,
     [] { make("mov.b64 %rd4, in;\nld.u64 %rd5, [%rd4];\n"); }},
    {"beyond the parameters", "8 bytes at 16, of parameters that have 16", CHECKS,
     [] { make("mov.b64 %rd4, in;\nld.param.u64 %rd5, [%rd4+16];\n"); }},
    {"a parameter that is not aligned", "is not a multiple of 8", CHECKS, [] { make("ld.param.u64 %rd5, [in+4];\n"); }},
    {"a register that nobody has written", "reads a register that nobody has written", CHECKS,
     [] { make("add.s32 %r4, %r1, %r5;\n"); }},
    {"a register that some have written",
     "block 0, threads 1 to 31: PTX line 20, `add.s32 %r6, %r5, 1;`: reads a register", CHECKS,
     [] { make("setp.eq.s32 %p1, %r1, 0;\n@%p1 mov.u32 %r5, 1;\nadd.s32 %r6, %r5, 1;\n"); }},
    {"a predicate that nobody has written", "reads a register that nobody has written", CHECKS,
     [] { make("@%p1 bra END;\nEND:\n"); }},
    {"a shuffle that some have left", "waits for lanes that do not come: threads 5 to 31: finished", CHECKS,
     [] { make("setp.ge.u32 %p1, %r1, 5;\n@%p1 bra END;\nshfl.sync.idx.b32 %r4, %r1, 0, 31, -1;\nEND:\n"); }},
    {"a shuffle and a vote", "waits for lanes that do not come: threads 5 to 31: waiting at line 22", CHECKS,
     [] {
         make("setp.ge.u32 %p1, %r1, 5;\n@%p1 bra OTHER;\nshfl.sync.idx.b32 %r4, %r1, 0, 31, "
              "-1;\nOTHER:\nvote.sync.any.pred %p2, %p1, -1;\n");
     }},
    {"a barrier after some have left", "a barrier that not all threads reach: threads 16 to 31: finished", CHECKS,
     [] { make("setp.ge.u32 %p1, %r1, 16;\n@%p1 ret;\nbar.sync 0;\n"); }},
    {"a vote after some have left", "waits for lanes that will not come: thread 0: finished", CHECKS,
     [] { make("setp.eq.s32 %p1, %r1, 0;\n@%p1 exit;\nvote.sync.any.pred %p2, %p1, -1;\n"); }},
    {"a mask without oneself", "is not in its own member mask", CHECKS, [] { make("bar.warp.sync 1;\n"); }},
    {"masks that differ", "have different member masks", CHECKS,
     [] { make("setp.eq.s32 %p1, %r1, 0;\nselp.b32 %r4, 3, -1, %p1;\nbar.warp.sync %r4;\n"); }},
    {"a shuffle from outside of the mask", "reads lane 16, which is not in its member mask", CHECKS,
     [] {
         make("setp.lt.u32 %p1, %r1, 16;\nselp.b32 %r5, 65535, -65536, %p1;\nshfl.sync.idx.b32 %r4, %r1, 16, 31, "
              "%r5;\n");
     }},
    {"half a warp at a barrier", "waits for lanes that do not come: threads 16 to 31: finished", CHECKS,
     [] { make("setp.ge.u32 %p1, %r1, 16;\n@%p1 bra END;\nbar.sync 0;\nEND:\n"); }},
    {"lanes at two barriers", "waits for lanes that do not come", CHECKS,
     [] {
         make("setp.ge.u32 %p1, %r1, 16;\n@%p1 bra OTHER;\nbar.sync 0;\nbra.uni END;\nOTHER:\nbar.sync 0;\nEND:\n");
     }},
    {"warps at two barriers", "other warps of the block wait at the barrier of line", CHECKS,
     [] {
         make("setp.ge.u32 %p1, %r1, 32;\n@%p1 bra OTHER;\nbar.sync 0;\nbra.uni END;\nOTHER:\nbar.sync 0;\nEND:\n", 1,
              64);
     }},
    {"a warp that misses a barrier", "have finished, and do not come", CHECKS,
     [] {
         make("setp.ge.u32 %p1, %r1, 32;\n@%p1 bra END;\nmov.u32 %r4, 0;\nWAIT:\nadd.s32 %r4, %r4, 1;\nsetp.lt.u32 "
              "%p1, %r4, 9999;\n@%p1 bra WAIT;\nbar.sync 0;\nEND:\n",
              1, 64);
     }},
    {"a warp that ends while others wait", "a barrier that not all threads reach: warp 1", CHECKS,
     [] {
         make("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra END;\nmov.u32 %r4, 0;\nWAIT:\nadd.s32 %r4, %r4, 1;\nsetp.lt.u32 "
              "%p1, %r4, 9999;\n@%p1 bra WAIT;\nret;\nEND:\nbar.sync 0;\n",
              1, 64);
     }},
    {"a parameter that is too wide",
     "parameter 0 has 4 bytes, aligned to 4, in the compiled kernel; the source passes 8", CHECKS,
     launch_with_a_wide_first},
    {"a parameter too few", "has 3 parameters, the source passes 2", CHECKS, launch_without_the_last},
    {"no such entry", "the compiled module has no entry of this name", CHECKS, [] { launch_as("k<8>", 32); }},
    {"a block that is too large", "blocks of 96 threads, which was compiled for 64", CHECKS,
     [] { launch_as("k<4>", 96); }},
    {"memory outside, read", "heap-buffer-overflow", ASAN,
     [] { make_on_the_heap("add.s64 %rd4, %rd1, %rd3;\nld.global.cg.u32 %r4, [%rd4+4];\n", 32); }},
    {"memory outside, written", "heap-buffer-overflow", ASAN,
     [] {
         make_on_the_heap("shl.b64 %rd4, %rd3, 1;\nadd.s64 %rd4, %rd2, %rd4;\nst.global.v2.u32 [%rd4], {%r1, %r1};\n",
                          63);
     }},
    {"memory outside, by an atomic", "heap-buffer-overflow", ASAN,
     [] { make_on_the_heap("add.s64 %rd4, %rd2, %rd3;\natom.add.relaxed.gpu.u32 %r4, [%rd4+4], 1;\n", 32); }},
    {"a race of streams", "data race", TSAN, race_of_streams},
};

} // namespace

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--case")) return make_mistake(mistakes, argv[2]);
#define TEST(function) cmocka_unit_test_setup(function, setup)
    std::vector<CMUnitTest> tests = {
        TEST(test_loops_and_branches),
        TEST(test_sides_that_shuffle),
        TEST(test_masks_of_one_instruction),
        TEST(test_lanes_that_wait_for_each_other),
        TEST(test_shuffles),
        TEST(test_votes),
        TEST(test_barriers),
        TEST(test_votes_of_a_block),
        TEST(test_atomics),
        TEST(test_blocks_that_wait_for_each_other),
        TEST(test_a_seed_is_a_schedule),
        TEST(test_a_lost_device),
        TEST(test_failures_on_request),
        TEST(test_loads_and_stores),
        TEST(test_wide_registers),
        TEST(test_parameters),
        TEST(test_unknown_text),
        TEST(test_our_own_text),
    };
    add_mistakes(&tests, mistakes);
    return _cmocka_run_group_tests("ptx", tests.data(), tests.size(), nullptr, nullptr);
}
