#pragma once
#include <cstdint>
#include <string>

#include "backends/cuda/device.h"
#include "backends/cuda/nccl_communicator.h"
#include "base/dtype.h"
#include "ir/marks.h"

namespace tessera::cuda {

// What ranks have, combined in rank order: the bits of the CPU's communicators, on any links and
// with any number of hosts. A kernel of this program adds the parts up: f32 and half precision in
// f32, f64 in f64, rounded once to the result. On one host it reads them where they lie, in the
// memory of the ranks (peer_memory.h), between two fences: all are ready, all have read. Elsewhere,
// and where that memory is not reached, NCCL moves them, as they are stored, to a scratch.
//
// On the wire it is as many bytes as NCCL's own rings move, half as many for half precision (which
// they get as f32). In memory it takes a scratch of `piece_bytes`: what is larger goes piece by
// piece, which changes no bit.
class RankOrderSums {
 public:
  static constexpr int64_t kPieceBytes = int64_t{64} << 20;
  // `communicator` null: to plan only.
  RankOrderSums(Device& device, NcclCommunicator* communicator, int64_t piece_bytes = kPieceBytes)
      : device_(device), communicator_(communicator), piece_bytes_(piece_bytes) {}

  // Bytes of scratch memory; `count` in elements of what a rank gets.
  int64_t reduce_scatter_bytes(int64_t ranks, int64_t count, DType dtype) const;
  int64_t all_reduce_bytes(int64_t ranks, int64_t count, DType dtype) const;

  struct Sum {
    Reduction reduction = Reduction::kSum;
    DType dtype = DType::kF32, output_dtype = DType::kF32;
    std::string label;  // what it is for, in messages
  };
  using Group = NcclCommunicator::Group;
  // from [ranks, count] to this rank's part of the sum [count].
  void reduce_scatter(const Group& group, const Sum& sum, const void* from, void* to, int64_t count,
                      void* scratch);
  // from [count] to [count]; may be the same address where the dtypes are the same.
  void all_reduce(const Group& group, const Sum& sum, const void* from, void* to, int64_t count,
                  void* scratch);

 private:
  // Elements of a piece of each part of `count`.
  int64_t piece(int64_t ranks, int64_t count, DType dtype) const;
  // This rank's part of what all have, to [count]; false where it is not reached.
  bool reduce_where_it_lies(const Group& group, const Sum& sum, const void* from, void* to,
                            int64_t count);
  // parts [ranks, count] to [count].
  void combine(const Sum& sum, const void* parts, void* to, int64_t count, int64_t ranks);

  Device& device_;
  NcclCommunicator* communicator_;
  int64_t piece_bytes_;
};

}  // namespace tessera::cuda
