#pragma once
#include <cstdint>

#include "checkpoint/checkpoint_reader.h"

namespace tessera {

// What the elements of a tensor are like. All but the counts is of those that are finite: NaN where
// there are none.
struct TensorStatistics {
  int64_t elements = 0, non_finite = 0;
  double minimum = 0, maximum = 0, mean = 0, norm = 0;
};

// Reads the tensor piece by piece, without looking at hashes: CheckpointReader::verify().
TensorStatistics statistics_of(const CheckpointReader& reader, const ManifestTensor& tensor);

// How the elements of two tensors differ. Elements of the same type are equal when their bits are;
// of different types, when they are the same number or both not one.
struct TensorDifference {
  int64_t elements = 0, different = 0;
  int64_t non_finite = 0;             // of the different ones, where one or both are not finite
  double absolute = 0, relative = 0;  // the largest among the others: |a - b|, and this over the
                                      // larger of |a| and |b|
};

// Of two tensors of one shape, whatever boxes each is stored in, piece by piece.
TensorDifference difference_of(const CheckpointReader& a, const ManifestTensor& tensor_a,
                               const CheckpointReader& b, const ManifestTensor& tensor_b);

}  // namespace tessera
