#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "backends/cuda/cuda_memory.h"

namespace tessera::cuda {

// Where kernels of one device say that an id was outside of its table: words in pinned memory of
// the host, one record a launch, which kernels write directly and only then. So a step asks for
// nothing: the host looks when it has waited for a run.
class IdFaults {
 public:
  explicit IdFaults(CudaDevice& device) : device_(device) {}
  // A record of a launch, free again with the last pointer to it. `what` stands first in the error.
  std::shared_ptr<IdFault> make(std::string what);
  // InternalError "embedding in embed: id 300 at position 17, of 257 rows" for what was found, and
  // forgets it: data is checked when it is read.
  void raise();

 private:
  struct Record {
    std::string what;
    bool used = false;
  };
  CudaDevice& device_;
  std::deque<PinnedBlock> blocks_;
  std::map<IdFault*, Record> records_;
};

}  // namespace tessera::cuda
