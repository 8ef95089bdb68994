#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/rewriter.h"
#include "ops/move/flat_unit.h"

namespace tessera {

// Adds gradients of units to the sums of earlier micro-batches part by part, each where it is made
// and by the op that makes it if that can (Op::adding). A plan lets the parts lie in the slot, so
// that no unit's gradient exists beside its sum, and a product reads and writes the sum while it is
// written anyway.
class GradientSums {
 public:
  GradientSums(const Graph& from, Graph& to, Rewriter& rewriter);

  // Whether the slot takes this gradient by parts: it is put together of such that nobody else
  // reads. To be asked before the nodes that make them are copied.
  bool take(Value gradient, const std::string& slot);

  // Copies a node, with what it makes added to the sums.
  void copy(const Node& node);

 private:
  // A slot seen as the parts that a gradient is put together of.
  struct Sums {
    std::string slot;
    TensorType type;
    std::vector<UnitMember> members;
    std::vector<Value> views;
  };
  struct Part {
    std::shared_ptr<Sums> sums;
    size_t member = 0;
  };

  int readers(Value v) const { return readers_[static_cast<size_t>(v.id)]; }
  const Node& maker(Value v) const { return from_.nodes()[static_cast<size_t>(from_.producer(v))]; }

  // What a value at an offset of the gradient is put together of. Of a part to which one op after
  // the other adds something (a table's gradient to that of a head), what the first of them makes.
  // False if somebody else reads one of all these values.
  bool find_parts(Value v, int64_t offset, std::vector<UnitMember>& members,
                  std::vector<Value>& parts) const;

  Value so_far(const Part& part);

  const Graph& from_;
  Graph& to_;
  Rewriter& rewriter_;
  std::vector<int> readers_;
  std::map<Value, Part> parts_;
};

}  // namespace tessera
