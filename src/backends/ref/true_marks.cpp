#include "backends/ref/true_marks.h"

#include <algorithm>
#include <bit>

#include "ir/printer.h"

namespace tessera::ref {
namespace {

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

void check(const Graph& graph, const Node& node, size_t output, const std::vector<Tensor>& ranks) {
  const Mesh& mesh = graph.mesh();
  AxisSet replicated = AxisSet{~0u} - graph.type(node.outputs[output]).varying;
  for (const std::vector<int>& group : mesh.groups(replicated)) {
    const std::vector<double>& first = ranks[static_cast<size_t>(group[0])].data;
    for (int rank : group) {
      const std::vector<double>& other = ranks[static_cast<size_t>(rank)].data;
      auto [a, b] = std::mismatch(first.begin(), first.end(), other.begin(), same_bits);
      TESSERA_CHECK(a == first.end(),
                    cat("output ", output, " of ", to_string(graph, node),
                        " is marked as equal on ranks ", group[0], " and ", rank, ", but element ",
                        a - first.begin(), " is ", *a, " and ", *b));
    }
  }
}

}  // namespace

Observer true_marks() { return check; }

}  // namespace tessera::ref
