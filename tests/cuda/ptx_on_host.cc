/* ptx_on_host.cc - launches of compiled kernels, and what was run (ptx_on_host.h). */
#include "ptx_on_host.h"

#include "ptx_run.h"

#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <set>
#include <sstream>

extern "C" const char frugal_ptx_text[], frugal_ptx_text_end[]; /* ptx_embedded.cc */

namespace ptx_on_host {
namespace {

std::string text() {
    const char *file = getenv("FRUGAL_PTX");
    if (!file || !*file) return std::string(frugal_ptx_text, frugal_ptx_text_end);
    std::ifstream in(file);
    std::stringstream all;
    all << in.rdbuf();
    if (!in) cuda_on_host::fail({nullptr, 0}, "FRUGAL_PTX: cannot read %s", file);
    return all.str();
}

void print_summary() {
    const ptx::module &m = this_module();
    fprintf(stderr, "# %s\n", summary(m).c_str());
    const char *wanted = getenv("FRUGAL_PTX_UNUSED");
    if (!wanted || !*wanted) return;
    for (size_t pc = 0; pc < m.code.size(); pc++)
        if (!m.executed[pc])
            fprintf(stderr, "# unused, line %u: %s\n", m.code[pc].line, m.line(m.code[pc].line).c_str());
}

/* `(kernel<4, 8>)` as a demangler writes it: without the parentheses that a macro needs. */
std::string entry_name(const char *name) {
    std::string text = name;
    if (text.size() > 1 && text[0] == '(' && text.back() == ')') text = text.substr(1, text.size() - 2);
    return text;
}

void check_parameters(const ptx::entry &e, const where &w, const arguments &a) {
    if (e.parameters.size() != a.each.size())
        cuda_on_host::fail(w.at, "launch of %s: the compiled kernel has %zu parameters, the source passes %zu", w.name,
                           e.parameters.size(), a.each.size());
    for (size_t i = 0; i < a.each.size(); i++) {
        const ptx::parameter &p = e.parameters[i];
        if (p.bytes != a.each[i].bytes || p.alignment != a.each[i].alignment)
            cuda_on_host::fail(
                w.at,
                "launch of %s: parameter %zu has %zu bytes, aligned to %zu, in the compiled kernel; the source "
                "passes %zu, aligned to %zu",
                w.name, i, p.bytes, p.alignment, a.each[i].bytes, a.each[i].alignment);
    }
}

} // namespace

bool has_module() {
    return !text().empty();
}

ptx::module &this_module() {
    static ptx::module *m = [] { /* never destroyed: threads of streams may outlive main */
                                 std::string why;
                                 auto made = ptx::read_module(text(), &why);
                                 if (!made) cuda_on_host::fail({nullptr, 0}, "%s", why.c_str());
                                 atexit(print_summary);
                                 return made.release();
    }();
    return *m;
}

cudaError_t launch_entry(ptx::module &m, const where &w, arguments &&a) {
    ptx::entry *e = m.find(entry_name(w.name));
    if (!e) cuda_on_host::fail(w.at, "launch of %s: the compiled module has no entry of this name", w.name);
    check_parameters(*e, w, a);
    if (w.block.x > e->most_threads)
        cuda_on_host::fail(w.at, "launch of %s with blocks of %u threads, which was compiled for %u", w.name, w.block.x,
                           e->most_threads);
    auto run = [&m, e, parameters = std::move(a.packed)](const cuda_on_host::kernel &k,
                                                         const cuda_on_host::schedule &s) {
        e->launches.fetch_add(1, std::memory_order_relaxed);
        ptx::run_grid(m, *e, parameters, k, s);
    };
    return cuda_on_host::launch_kernel({w.name, w.at, w.grid, w.block, nullptr, run}, w.stream);
}

report report_of(const ptx::module &m) {
    report r = {};
    std::set<uint32_t> run;
    for (size_t pc = 0; pc < m.code.size(); pc++) {
        uint64_t n = m.executed[pc].load(std::memory_order_relaxed);
        r.instructions += n, r.lines++, r.lines_run += n != 0;
        if (n) run.insert(m.code[pc].form);
    }
    for (uint32_t i = 0; i < m.forms.size(); i++)
        if (!run.count(i)) r.idle_forms.push_back(m.forms[i]);
    r.forms = m.forms.size(), r.forms_run = run.size(), r.entries = m.entries.size();
    for (const auto &e : m.entries) {
        uint64_t n = e->launches.load(std::memory_order_relaxed);
        r.launches += n, r.entries_run += n != 0;
        if (!n) r.idle_entries.push_back(e->name);
    }
    return r;
}

std::string summary(const ptx::module &m) {
    report r = report_of(m);
    char line[256];
    snprintf(line, sizeof line,
             "PTX %s: %llu of %llu entries run, %llu of %llu forms, %llu of %llu instructions; %llu launches, %llu "
             "instructions of warps",
             m.target.c_str(), static_cast<unsigned long long>(r.entries_run),
             static_cast<unsigned long long>(r.entries), static_cast<unsigned long long>(r.forms_run),
             static_cast<unsigned long long>(r.forms), static_cast<unsigned long long>(r.lines_run),
             static_cast<unsigned long long>(r.lines), static_cast<unsigned long long>(r.launches),
             static_cast<unsigned long long>(r.instructions));
    return line;
}

} // namespace ptx_on_host
