#pragma once
#include <cstdint>
#include <limits>
#include <memory>

#include "backends/cuda/device.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// Looks at the ids of a launch before its kernels take zeros for those outside of a table: then the
// run ends with an error. `ignored` may stand there.
class IdCheck {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  IdCheck() = default;  // looks at nothing
  IdCheck(Device& device, const PrepareContext& context, const TensorType& ids, int64_t rows,
          int64_t ignored = kNone);
  void run(const void* ids) const;

 private:
  Device* device_ = nullptr;
  Kernel kernel_;
  int64_t count_ = 0, rows_ = 0, ignored_ = 0;
  std::shared_ptr<IdFault> fault_;
};

}  // namespace tessera::cuda
