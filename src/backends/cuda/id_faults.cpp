#include "backends/cuda/id_faults.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {

std::shared_ptr<IdFault> IdFaults::make(std::string what) {
  constexpr int64_t kRecords = 128;  // of a block
  const auto guard = device_.lock();
  auto free = records_.begin();
  while (free != records_.end() && free->second.used) ++free;
  if (free == records_.end()) {
    blocks_.emplace_back(device_, kRecords * static_cast<int64_t>(sizeof(IdFault)),
                         "what kernels find wrong");
    auto* first = reinterpret_cast<IdFault*>(blocks_.back().data());
    for (int64_t i = 0; i < kRecords; ++i) records_[first + i] = {};
    free = records_.find(first);
  }
  free->second = {std::move(what), true};
  *free->first = {};
  return {free->first, [this](IdFault* record) {
            const auto held = device_.lock();
            records_[record].used = false;
          }};
}

void IdFaults::raise() {
  const auto guard = device_.lock();
  std::string text;
  for (auto& [record, one] : records_) {
    if (!one.used || record->position_after == 0) continue;
    if (text.empty())
      text = cat(one.what, ": id ", record->id, " at position ", record->position_after - 1,
                 ", of ", record->rows, " rows");
    *record = {};
  }
  if (!text.empty()) throw InternalError(text);
}

}  // namespace tessera::cuda
