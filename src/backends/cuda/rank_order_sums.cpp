#include "backends/cuda/rank_order_sums.h"

#include <algorithm>
#include <optional>

#include "backends/cuda/kernel_launch.h"
#include "base/text.h"

namespace tessera::cuda {

int64_t RankOrderSums::piece(int64_t ranks, int64_t count, DType dtype) const {
  constexpr int64_t kFewest = 8;  // of which the kernel takes so many at a time
  return std::min(count, std::max(kFewest, piece_bytes_ / (ranks * size_of(dtype))));
}

int64_t RankOrderSums::reduce_scatter_bytes(int64_t ranks, int64_t count, DType dtype) const {
  return aligned_bytes(ranks * piece(ranks, count, dtype) * size_of(dtype));
}

// The parts that are equal on all ranks, and what is left over, of which every rank gets all.
int64_t RankOrderSums::all_reduce_bytes(int64_t ranks, int64_t count, DType dtype) const {
  const int64_t left = count % ranks;
  return reduce_scatter_bytes(ranks, count / ranks, dtype) +
         aligned_bytes(ranks * left * size_of(dtype));
}

namespace {

template <class... Parts>
Kernel kernel_of(Device& device, const RankOrderSums::Sum& sum, Parts... parts) {
  return find_kernel(device, "ranks", sum.reduction == Reduction::kSum ? "sum" : "max",
                     name(sum.dtype), name(sum.output_dtype), parts...);
}

}  // namespace

void RankOrderSums::combine(const Sum& sum, const void* parts, void* to, int64_t count,
                            int64_t ranks) {
  launch_vectors(device_, kernel_of(device_, sum), count, parts, to, count, count,
                 static_cast<int32_t>(ranks));
}

bool RankOrderSums::reduce_where_it_lies(const Group& group, const Sum& sum, const void* from,
                                         void* to, int64_t count) {
  const PeerMemory* peers = communicator_->peers();
  std::optional<Summands> parts = peers ? peers->of(group.ranks, from) : std::nullopt;
  if (!parts) return false;
  for (int r = 0; r < group.size; ++r)
    parts->x[r] =
        static_cast<const std::byte*>(parts->x[r]) + group.index * count * size_of(sum.dtype);
  communicator_->fence(group, sum.label);
  launch_vectors(device_, kernel_of(device_, sum, "apart"), count, *parts, to, count);
  communicator_->fence(group, sum.label);
  return true;
}

void RankOrderSums::reduce_scatter(const Group& group, const Sum& sum, const void* from, void* to,
                                   int64_t count, void* scratch) {
  if (count == 0 || reduce_where_it_lies(group, sum, from, to, count)) return;
  const int64_t most = piece(group.size, count, sum.dtype);
  for (int64_t begin = 0; begin < count; begin += most) {
    const int64_t size = std::min(most, count - begin);
    communicator_->exchange_parts(group,
                                  static_cast<const std::byte*>(from) + begin * size_of(sum.dtype),
                                  count, scratch, size, sum.dtype, sum.label);
    combine(sum, scratch, static_cast<std::byte*>(to) + begin * size_of(sum.output_dtype), size,
            group.size);
  }
}

void RankOrderSums::all_reduce(const Group& group, const Sum& sum, const void* from, void* to,
                               int64_t count, void* scratch) {
  const int64_t ranks = group.size, part = count / ranks, whole = part * ranks;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const int64_t in_bytes = size_of(sum.dtype), out_bytes = size_of(sum.output_dtype);
  auto* rest = static_cast<std::byte*>(scratch) + reduce_scatter_bytes(ranks, part, sum.dtype);
  // In place each piece of this rank's part is written when it has been read, and nothing else is
  // before all parts are gathered.
  if (count > whole)
    communicator_->all_gather(group, source + whole * in_bytes, rest, count - whole, sum.dtype,
                              sum.label);
  if (part > 0) {
    std::byte* own = target + group.index * part * out_bytes;
    reduce_scatter(group, sum, from, own, part, scratch);
    communicator_->all_gather(group, own, target, part, sum.output_dtype, sum.label);
  }
  if (count > whole) combine(sum, rest, target + whole * out_bytes, count - whole, ranks);
}

}  // namespace tessera::cuda
