/* ptx_run.h - runs an entry of a module, on the thread that calls. */
#ifndef PTX_RUN_H
#define PTX_RUN_H

#include "cuda_on_host_grid.h"
#include "ptx_module.h"

namespace ptx {

void run_grid(module &m, const entry &e, const std::string &parameters, const cuda_on_host::kernel &k,
              const cuda_on_host::schedule &s);

} // namespace ptx
#endif
