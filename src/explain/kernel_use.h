#pragma once
#include <string>
#include <vector>

#include "programs/session.h"

namespace tessera {

// The nodes of one op that one kernel took, in all programs.
struct KernelUse {
  std::string op, kernel;  // kernel "": storage only, nothing runs; or nobody knows
  int64_t nodes = 0;
  double launches = 0;      // of a step; 0: of the evaluation alone
  double flops = 0;         // of a step
  int64_t workspace = 0;    // bytes, of the node that takes most
  std::string passed_over;  // why better kernels did not take it
};

struct KernelUses {
  std::vector<KernelUse> kernels;  // most FLOP first, then most launches; then what does not run
  std::vector<Declined> decomposed;
  double flops = 0;  // of a step, what is computed again included
};
KernelUses kernel_uses(const Session& session, int64_t micro_batches);

// How often a step runs a program; where nothing is trained: a validation batch.
int64_t runs_in_step(const Programs& programs, std::string_view program, int64_t micro_batches);

}  // namespace tessera
