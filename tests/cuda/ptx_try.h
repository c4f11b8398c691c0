/* ptx_try.h - for tests: texts of PTX around a few instructions, and running them. */
#ifndef PTX_TRY_H
#define PTX_TRY_H

#include "ptx_module.h"
#include "ptx_on_host.h"

#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

namespace ptx_try {

/* An entry `k(in, out)`: %rd1 is `in`, %rd2 `out`, %r1 the thread in its block, %r2 the thread in the grid, %rd3 four
 * times %r2; the rest is the body's, registers with numbers from 4 on. */
inline std::string text_of(const std::string &body) {
    return ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
           "\t.reg .pred %p<32>;\n\t.reg .b16 %rs<16>;\n\t.reg .b32 %r<64>;\n\t.reg .f32 %f<64>;\n\t.reg .b64 "
           "%rd<64>;\n"
           "\tld.param.u64 %rd1, [in];\n\tld.param.u64 %rd2, [out];\n\tmov.u32 %r1, %tid.x;\n\tmov.u32 %r3, %ctaid.x;\n"
           "\tmov.u32 %r2, %ntid.x;\n\tmad.lo.s32 %r2, %r3, %r2, %r1;\n\tmul.wide.u32 %rd3, %r2, 4;\n" +
           body + "\n\tret;\n}\n";
}

inline std::unique_ptr<ptx::module> read(const std::string &text) {
    std::string why;
    auto m = ptx::read_module(text, &why);
    if (!m) {
        fprintf(stderr, "%s\n%s\n", why.c_str(), text.c_str());
        abort();
    }
    return m;
}

/* Returns when it has run. Memory is the host's. */
template <typename I, typename O>
void run(const std::string &body, unsigned grid, unsigned block, std::vector<I> &in, std::vector<O> &out) {
    auto m = read(text_of(body));
    ptx_on_host::arguments a;
    a.add(in.data()), a.add(out.data());
    cudaError_t e = ptx_on_host::launch_entry(*m, {"k", cuda_on_host::here(), grid, block, nullptr}, std::move(a));
    if (!e) e = cudaDeviceSynchronize();
    if (e) cuda_on_host::fail(cuda_on_host::here(), "%s", cudaGetErrorString(e));
}

} // namespace ptx_try
#endif
