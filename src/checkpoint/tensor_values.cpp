#include "checkpoint/tensor_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/element_types.h"
#include "base/error.h"
#include "base/interruption.h"

namespace tessera {
namespace {

constexpr int64_t kElements = 1 << 18;  // worked on at once

template <class T>
void widen(const std::byte* stored, std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, stored + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
}

void to_f64(DType dtype, std::span<const std::byte> stored, std::vector<double>& values) {
  values.resize(stored.size() / static_cast<size_t>(size_of(dtype)));
  switch (dtype) {
    case DType::kF64: return widen<double>(stored.data(), values);
    case DType::kI64: return widen<int64_t>(stored.data(), values);
    case DType::kI32: return widen<int32_t>(stored.data(), values);
    case DType::kBool: return widen<uint8_t>(stored.data(), values);
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: {
      std::vector<float> narrow(values.size());
      to_f32(dtype, stored.data(), narrow);
      std::ranges::copy(narrow, values.begin());
    }
  }
}

// Boxes of at most kElements that make up `box`, each consecutive where the whole of it is.
template <class Visit>
void for_each_piece(const TensorBox& box, const Visit& visit) {
  const int64_t elements = box.elements();
  for (int64_t first = 0; first < elements; first += kElements) {
    check_interruption();
    for (TensorBox& piece :
         boxes_of_range(box.shape, first, std::min(kElements, elements - first))) {
      for (size_t d = 0; d < piece.begin.size(); ++d) piece.begin[d] += box.begin[d];
      visit(piece);
    }
  }
}

void read(const CheckpointReader& reader, const ManifestTensor& tensor, const TensorBox& box,
          std::vector<std::byte>& content) {
  const int64_t size = size_of(tensor.dtype);
  content.resize(static_cast<size_t>(box.elements() * size));
  reader.read(tensor, box, [&](int64_t first, std::span<const std::byte> part) {
    std::memcpy(content.data() + first * size, part.data(), part.size());
  });
}

// The elements of one box in both tensors.
class Comparison {
 public:
  Comparison(DType a, DType b) : dtype_a_(a), dtype_b_(b) {}

  void add(std::span<const std::byte> a, std::span<const std::byte> b) {
    const bool same_type = dtype_a_ == dtype_b_;
    const auto size = static_cast<size_t>(size_of(dtype_a_));
    found_.elements += static_cast<int64_t>(a.size() / size);
    if (same_type && std::memcmp(a.data(), b.data(), a.size()) == 0) return;
    to_f64(dtype_a_, a, values_a_);
    to_f64(dtype_b_, b, values_b_);
    for (size_t i = 0; i < values_a_.size(); ++i) {
      const double x = values_a_[i], y = values_b_[i];
      const bool equal = same_type
                             ? std::memcmp(a.data() + i * size, b.data() + i * size, size) == 0
                             : x == y || (std::isnan(x) && std::isnan(y));
      if (!equal) add_pair(x, y);
    }
  }
  const TensorDifference& found() const { return found_; }

 private:
  void add_pair(double x, double y) {
    ++found_.different;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      ++found_.non_finite;
      return;
    }
    const double apart = std::abs(x - y), larger = std::max(std::abs(x), std::abs(y));
    found_.absolute = std::max(found_.absolute, apart);
    if (larger > 0) found_.relative = std::max(found_.relative, apart / larger);
  }

  DType dtype_a_, dtype_b_;
  std::vector<double> values_a_, values_b_;
  TensorDifference found_;
};

}  // namespace

TensorStatistics statistics_of(const CheckpointReader& reader, const ManifestTensor& tensor) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  TensorStatistics result{.minimum = kNone, .maximum = kNone, .mean = kNone, .norm = kNone};
  double sum = 0, squares = 0;
  std::vector<std::byte> content;
  std::vector<double> values;
  for (const StoredBox& stored : tensor.boxes) {
    for_each_piece(stored.box, [&](const TensorBox& piece) {
      read(reader, tensor, piece, content);
      to_f64(tensor.dtype, content, values);
      result.elements += std::ssize(values);
      for (double x : values) {
        if (!std::isfinite(x)) {
          ++result.non_finite;
          continue;
        }
        result.minimum = std::fmin(result.minimum, x);
        result.maximum = std::fmax(result.maximum, x);
        sum += x;
        squares += x * x;
      }
    });
  }
  if (const int64_t finite = result.elements - result.non_finite; finite > 0) {
    result.mean = sum / static_cast<double>(finite);
    result.norm = std::sqrt(squares);
  }
  return result;
}

TensorDifference difference_of(const CheckpointReader& a, const ManifestTensor& tensor_a,
                               const CheckpointReader& b, const ManifestTensor& tensor_b) {
  TESSERA_CHECK(tensor_a.shape == tensor_b.shape, tensor_a.name);
  Comparison comparison(tensor_a.dtype, tensor_b.dtype);
  std::vector<std::byte> content_a, content_b;
  for (const StoredBox& stored : tensor_a.boxes) {
    for_each_piece(stored.box, [&](const TensorBox& piece) {
      read(a, tensor_a, piece, content_a);
      read(b, tensor_b, piece, content_b);
      comparison.add(content_a, content_b);
    });
  }
  return comparison.found();
}

}  // namespace tessera
