#pragma once
#include <functional>
#include <vector>

#include "plan/plan.h"
#include "runtime/kernel_table.h"

namespace tessera {

// Where everything of a plan lies once its storages have addresses.
class PlanAddresses {
 public:
  PlanAddresses() = default;
  // `storage` gives a storage's first byte.
  PlanAddresses(const Graph& graph, const Plan& plan,
                const std::function<std::byte*(const Storage&)>& storage);
  // Not to be copied: launches are views of other members. Moving keeps them.
  PlanAddresses(PlanAddresses&&) = default;
  PlanAddresses& operator=(PlanAddresses&&) = default;

  std::byte* at(Place place) const {
    return storages_[static_cast<size_t>(place.storage)] + place.offset;
  }
  const LaunchArguments& launch(size_t node) const { return launches_[node]; }

 private:
  std::vector<std::byte*> storages_;
  std::vector<const void*> inputs_;  // of all nodes, one after another
  std::vector<void*> outputs_;       // likewise
  std::vector<LaunchArguments> launches_;
};

}  // namespace tessera
