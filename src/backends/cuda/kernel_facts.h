#pragma once
#include <map>
#include <string>

namespace tessera::cuda {

// What nvcc makes of a kernel for one compute capability: static, nothing was run.
struct CompiledKernel {
  int registers = 0;            // of a thread
  int shared_bytes = 0;         // of a block, beside what a launch gives
  int spilled_bytes = 0;        // of a thread, to memory
  int tensor_instructions = 0;  // of tensor cores, in the code
};
struct KernelFacts {
  int most_threads = 0;                    // of a block, as it is compiled
  std::map<int, CompiledKernel> compiled;  // by capability: 80, 90
};

// By the kernels' names, as src/backends/cuda/kernel_facts.txt has them, which bench/cuda_static
// writes. Also in builds without kernels.
const std::map<std::string, KernelFacts, std::less<>>& kernel_facts();

// What of a multiprocessor blocks of a kernel can fill, by the published limits.
struct Occupancy {
  int blocks = 0;    // at a time
  double share = 0;  // their threads, of all that a multiprocessor has
};
Occupancy occupancy(int capability, const CompiledKernel& kernel, int threads, int given_shared);

}  // namespace tessera::cuda
