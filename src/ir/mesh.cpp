#include "ir/mesh.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  TESSERA_CHECK(axes_.size() <= 32);
  for (const Axis& a : axes_) {
    TESSERA_CHECK(a.size >= 1, a.name);
    TESSERA_CHECK(std::count_if(axes_.begin(), axes_.end(),
                                [&](const Axis& b) { return b.name == a.name; }) == 1,
                  cat("two axes '", a.name, "'"));
  }
}

AxisSet Mesh::axis(const std::string& name) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == name) return {1u << i};
  }
  throw InternalError(cat("the mesh has no axis '", name, "'"));
}

int Mesh::size(AxisSet set) const {
  int n = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (set.bits >> i & 1u) n *= axes_[i].size;
  }
  return n;
}

int Mesh::index(int rank, AxisSet set) const {
  int index = 0, stride = 1;
  for (size_t i = axes_.size(); i-- > 0;) {
    int coordinate = rank % axes_[i].size;
    rank /= axes_[i].size;
    if (set.bits >> i & 1u) {
      index += coordinate * stride;
      stride *= axes_[i].size;
    }
  }
  return index;
}

std::vector<std::vector<int>> Mesh::groups(AxisSet set) const {
  AxisSet others = AxisSet{~0u} - set;
  std::vector<std::vector<int>> groups(static_cast<size_t>(size(others)),
                                       std::vector<int>(static_cast<size_t>(size(set))));
  for (int rank = 0; rank < world_size(); ++rank) {
    groups[static_cast<size_t>(index(rank, others))][static_cast<size_t>(index(rank, set))] = rank;
  }
  return groups;
}

std::string Mesh::to_string(AxisSet set) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (set.bits >> i & 1u) names.push_back(axes_[i].name);
  }
  return cat("{", join(names, ", "), "}");
}

}  // namespace tessera
