#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// A set of mesh axes, one bit each. As part of a tensor's type: the axes over which it varies.
struct AxisSet {
  uint32_t bits = 0;
  bool empty() const { return bits == 0; }
  bool contains(AxisSet other) const { return (bits & other.bits) == other.bits; }
  bool overlaps(AxisSet other) const { return (bits & other.bits) != 0; }
  friend AxisSet operator|(AxisSet a, AxisSet b) { return {a.bits | b.bits}; }
  friend AxisSet operator-(AxisSet a, AxisSet b) { return {a.bits & ~b.bits}; }
  friend bool operator==(AxisSet, AxisSet) = default;
};

// Named axes over the ranks of a job, outermost first: rank = ((i0 * n1) + i1) * n2 + i2 ...
// "axis" is a mesh word; tensors have dims.
class Mesh {
 public:
  struct Axis {
    std::string name;
    int size = 1;
    friend bool operator==(const Axis&, const Axis&) = default;
  };

  Mesh() = default;  // one rank
  explicit Mesh(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  // The axis of that name as a set; InternalError if there is none.
  AxisSet axis(const std::string& name) const;
  AxisSet all_axes() const { return {(1u << axes_.size()) - 1}; }
  int world_size() const { return size(all_axes()); }
  // Number of ranks along the axes of the set.
  int size(AxisSet set) const;
  // Position of `rank` along the axes of the set, outermost axis first.
  int index(int rank, AxisSet set) const;
  // Ranks that differ from each other only along `set`, each group in order of index().
  std::vector<std::vector<int>> groups(AxisSet set) const;
  // "{shard, tp}"
  std::string to_string(AxisSet set) const;
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::vector<Axis> axes_;
};

}  // namespace tessera
