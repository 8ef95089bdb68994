#include "backends/cuda/id_check.h"

#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {

IdCheck::IdCheck(Device& device, const PrepareContext& context, const TensorType& ids, int64_t rows,
                 int64_t ignored)
    : device_(&device),
      kernel_(find_kernel(device, "first_outside", name(ids.dtype))),
      count_(ids.elements()),
      rows_(rows),
      ignored_(ignored),
      fault_(device.id_fault(context.label.empty() ? std::string(context.op.name())
                                                   : context.label)) {}

void IdCheck::run(const void* ids) const {
  if (!device_ || count_ == 0) return;
  device_->launch(kernel_, {1}, {kBlockThreads}, 0, ids, fault_.get(), count_, rows_, ignored_);
}

}  // namespace tessera::cuda
