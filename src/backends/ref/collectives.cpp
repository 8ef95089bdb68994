#include "backends/ref/collectives.h"

#include <algorithm>

#include "ops/collective/collective.h"
#include "runtime/kernel_preparation.h"

namespace tessera::ref {
namespace {

// The elements [begin, begin + count) along dim, row-major.
std::vector<double> part_of(const Tensor& t, int64_t dim, int64_t begin, int64_t count) {
  Cut cut(t.type.shape, dim);
  std::vector<double> part;
  for (int64_t o = 0; o < cut.outer; ++o) {
    auto from = t.data.begin() + (o * cut.size + begin) * cut.inner;
    part.insert(part.end(), from, from + count * cut.inner);
  }
  return part;
}

void put_part(Tensor& t, int64_t dim, int64_t begin, int64_t count,
              const std::vector<double>& part) {
  Cut cut(t.type.shape, dim);
  for (int64_t o = 0; o < cut.outer; ++o) {
    std::copy_n(part.begin() + o * count * cut.inner, count * cut.inner,
                t.data.begin() + (o * cut.size + begin) * cut.inner);
  }
}

// Sum or maximum in rank order, in double for f64 and in float for the rest.
std::vector<double> reduce(const std::vector<std::vector<double>>& parts, DType dtype, bool sum) {
  std::vector<double> result = parts[0];
  for (size_t r = 1; r < parts.size(); ++r) {
    for (size_t i = 0; i < result.size(); ++i) {
      double a = result[i], b = parts[r][i];
      if (!sum)
        result[i] = std::max(a, b);
      else if (dtype == DType::kF64 || !is_float(dtype))
        result[i] = a + b;
      else
        result[i] = static_cast<float>(a) + static_cast<float>(b);
    }
  }
  return result;
}

// Operand and result of rank `rank`.
using Inputs = std::vector<const Tensor*>;
using Outputs = std::vector<Tensor>;

void all_reduce(Reduction reduction, const std::vector<int>& group, const Inputs& in,
                Outputs& out) {
  std::vector<std::vector<double>> parts;
  for (int rank : group) parts.push_back(in[static_cast<size_t>(rank)]->data);
  DType dtype = in[static_cast<size_t>(group[0])]->type.dtype;
  auto result = reduce(parts, dtype, reduction == Reduction::kSum);
  for (int rank : group) out[static_cast<size_t>(rank)].data = result;
}

void exchange(const Collective& c, const std::vector<int>& group, const Inputs& in, Outputs& out) {
  auto n = static_cast<int64_t>(group.size());
  auto input = [&](int64_t i) -> const Tensor& {
    return *in[static_cast<size_t>(group[static_cast<size_t>(i)])];
  };
  auto output = [&](int64_t i) -> Tensor& {
    return out[static_cast<size_t>(group[static_cast<size_t>(i)])];
  };
  int64_t dim = c.dim(), in_size = input(0).type.shape[static_cast<size_t>(dim)];
  for (int64_t i = 0; i < n; ++i) {
    switch (c.kind()) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kGatherReplicated:
        for (int64_t j = 0; j < n; ++j)
          put_part(output(i), dim, j * in_size, in_size, input(j).data);
        break;
      case CollectiveKind::kReduceScatter: {
        std::vector<std::vector<double>> parts;
        for (int64_t j = 0; j < n; ++j)
          parts.push_back(part_of(input(j), dim, i * (in_size / n), in_size / n));
        output(i).data = reduce(parts, input(0).type.dtype, true);
        break;
      }
      case CollectiveKind::kLocalSlice:
        output(i).data = part_of(input(i), dim, i * (in_size / n), in_size / n);
        break;
      case CollectiveKind::kAllToAll: {
        int64_t concat_size = output(i).type.shape[static_cast<size_t>(c.concat_dim())] / n;
        for (int64_t j = 0; j < n; ++j) {
          put_part(output(i), c.concat_dim(), j * concat_size, concat_size,
                   part_of(input(j), dim, i * (in_size / n), in_size / n));
        }
        break;
      }
    }
  }
}

}  // namespace

void run_collective(const Op& op, const Mesh& mesh, const std::vector<const Tensor*>& inputs,
                    std::vector<Tensor>& outputs) {
  if (dynamic_cast<const VaryOp*>(&op) || dynamic_cast<const AsReplicatedOp*>(&op)) {
    for (size_t r = 0; r < inputs.size(); ++r) outputs[r].data = inputs[r]->data;
  } else if (const auto* index = dynamic_cast<const AxisIndex*>(&op)) {
    for (size_t r = 0; r < outputs.size(); ++r)
      outputs[r].data = {static_cast<double>(mesh.index(static_cast<int>(r), index->axes()))};
  } else if (const auto* sum = dynamic_cast<const AllReduceOp*>(&op)) {
    for (const std::vector<int>& group : mesh.groups(sum->axes()))
      all_reduce(sum->reduction(), group, inputs, outputs);
  } else {
    const auto& collective = dynamic_cast<const Collective&>(op);
    for (const std::vector<int>& group : mesh.groups(collective.axes()))
      exchange(collective, group, inputs, outputs);
  }
}

}  // namespace tessera::ref
