#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "runtime/kernel_table.h"

// What the files that register kernels of native backends share.
namespace tessera {

// A tensor seen as [outer, size of dim, inner].
struct Cut {
  int64_t outer = 1, size = 1, inner = 1;
  Cut(const Shape& shape, int64_t dim) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      (d < dim ? outer : d == dim ? size : inner) *= shape[static_cast<size_t>(d)];
  }
};

// Distance in elements between neighbours along each dim of a row-major tensor.
inline std::vector<int64_t> row_major_strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// x [.., K] as a matrix of rows.
inline int64_t rows_of(const TensorType& t) {
  return t.shape.back() == 0 ? 0 : t.elements() / t.shape.back();
}

// Up to where what follows in a workspace begins.
inline int64_t aligned_bytes(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A prepare function for kernels of composites that accept every node of f32 or bf16 tensors
// (judged by operand `which`); other dtypes run through the decomposition.
template <class Make>
Prepare for_floats(size_t which, Make make) {
  return [which, make](const PrepareContext& context) -> Prepared {
    DType d = context.inputs[which].dtype;
    if (d != DType::kF32 && d != DType::kBF16) return cat("takes f32 and bf16, not ", name(d));
    return make(context);
  };
}

inline std::string heads_too_wide(int64_t most) {
  return cat("heads of at most ", most, " elements");
}

// InternalError where there is none: the program was compiled to be planned only.
template <class Communicator>
Communicator& require_communicator(Communicator* communicator) {
  TESSERA_CHECK(communicator, "this program was compiled to be planned only");
  return *communicator;
}
void require_ranks(const Mesh& mesh, int ranks);

// From f16 to f32 and back, of so many elements.
using Cast = std::function<void(const void* from, void* to, int64_t elements)>;
struct HalfCasts {
  Cast widen, narrow;
};
// A node with f16 tensors by the kernel that takes it with f32 in their place; these lie in the
// workspace.
Prepared prepare_in_f32(const KernelTable& table, const PrepareContext& context,
                        const std::function<HalfCasts()>& make_casts);

}  // namespace tessera
