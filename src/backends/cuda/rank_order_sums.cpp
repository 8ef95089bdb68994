#include "backends/cuda/rank_order_sums.h"

#include "backends/cuda/kernel_launch.h"
#include "base/text.h"

namespace tessera::cuda {

int64_t RankOrderSums::reduce_scatter_bytes(int64_t ranks, int64_t count, DType dtype) {
  return aligned_bytes(ranks * count * size_of(dtype));
}

// The parts that are equal on all ranks, and what is left over, of which every rank gets all.
int64_t RankOrderSums::all_reduce_bytes(int64_t ranks, int64_t count, DType dtype) {
  const int64_t left = count % ranks;
  return reduce_scatter_bytes(ranks, count / ranks, dtype) +
         aligned_bytes(ranks * left * size_of(dtype));
}

void RankOrderSums::combine(const Sum& sum, const void* parts, void* to, int64_t count,
                            int64_t ranks) {
  const Kernel kernel =
      find_kernel(device_, "ranks", sum.reduction == Reduction::kSum ? "sum" : "max",
                  name(sum.dtype), name(sum.output_dtype));
  launch_vectors(device_, kernel, count, parts, to, count, count, static_cast<int32_t>(ranks));
}

void RankOrderSums::reduce_scatter(const Group& group, const Sum& sum, const void* from, void* to,
                                   int64_t count, void* scratch) {
  if (count == 0) return;
  communicator_->all_to_all(group, from, scratch, count, sum.dtype, sum.label);
  combine(sum, scratch, to, count, group.size);
}

void RankOrderSums::all_reduce(const Group& group, const Sum& sum, const void* from, void* to,
                               int64_t count, void* scratch) {
  const int64_t ranks = group.size, part = count / ranks, whole = part * ranks;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const int64_t in_bytes = size_of(sum.dtype), out_bytes = size_of(sum.output_dtype);
  auto* parts = static_cast<std::byte*>(scratch);
  auto* rest = parts + reduce_scatter_bytes(ranks, part, sum.dtype);
  // All that is read of `from` before `to` is written.
  if (part > 0) communicator_->all_to_all(group, source, parts, part, sum.dtype, sum.label);
  if (count > whole)
    communicator_->all_gather(group, source + whole * in_bytes, rest, count - whole, sum.dtype,
                              sum.label);
  if (part > 0) {
    std::byte* own = target + group.index * part * out_bytes;
    combine(sum, parts, own, part, ranks);
    communicator_->all_gather(group, own, target, part, sum.output_dtype, sum.label);
  }
  if (count > whole) combine(sum, rest, target + whole * out_bytes, count - whole, ranks);
}

}  // namespace tessera::cuda
