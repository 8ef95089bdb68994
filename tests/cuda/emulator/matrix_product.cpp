#include "matrix_product.h"

#include <cstring>
#include <vector>

#include "backends/cuda/cublaslt_api.h"
#include "host_elements.h"

namespace tessera::emulated_gpu {
namespace {

using namespace cuda;

double load(int type, const std::byte* at) {
  if (type == kCudaReal32F || type == kCudaReal64F) return scalar(type, at);
  uint16_t half;
  std::memcpy(&half, at, 2);
  return type == kCudaReal16BF ? from_bf16(half) : from_f16(half);
}
void store(int type, std::byte* at, double value) {
  const auto single = static_cast<float>(value);
  if (type == kCudaReal64F) {
    std::memcpy(at, &value, 8);
  } else if (type == kCudaReal32F) {
    std::memcpy(at, &single, 4);
  } else {
    const uint16_t half = type == kCudaReal16BF ? to_bf16(single) : to_f16(single);
    std::memcpy(at, &half, 2);
  }
}

// op(x) with `rows` neighbours in memory.
template <class T>
std::vector<T> unpack(const MatrixView& x, int64_t batch, bool transpose) {
  const int64_t rows = transpose ? x.columns : x.rows, columns = transpose ? x.rows : x.columns;
  const int64_t size = element_bytes(x.type);
  const std::byte* begin = x.data + batch * x.stride * size;
  std::vector<T> values(static_cast<size_t>(rows * columns));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = transpose ? r * x.leading + c : c * x.leading + r;
      values[static_cast<size_t>(c * rows + r)] = static_cast<T>(load(x.type, begin + at * size));
    }
  }
  return values;
}

template <class T>
void multiply_in(const Product& p, const MatrixView& a, const MatrixView& b, const MatrixView& c,
                 const MatrixView& d, int64_t batch) {
  const auto of_a = unpack<T>(a, batch, p.transpose_a), of_b = unpack<T>(b, batch, p.transpose_b);
  const int64_t terms = p.transpose_a ? a.rows : a.columns;
  const int64_t size = element_bytes(d.type);
  const auto alpha = static_cast<T>(p.alpha), beta = static_cast<T>(p.beta);
  std::vector<T> sums(static_cast<size_t>(d.rows)), part(sums.size());
  for (int64_t column = 0; column < d.columns; ++column) {
    sums.assign(sums.size(), T{0});
    for (int64_t n = 0; n < p.parts; ++n) {
      part.assign(sums.size(), T{0});
      for (int64_t k = n * terms / p.parts; k < (n + 1) * terms / p.parts; ++k) {
        const T factor = of_b[static_cast<size_t>(column * terms + k)];
        const T* terms_of_a = of_a.data() + k * d.rows;
        for (size_t row = 0; row < part.size(); ++row) part[row] += terms_of_a[row] * factor;
      }
      for (size_t row = 0; row < sums.size(); ++row) sums[row] += part[row];
    }
    for (int64_t row = 0; row < d.rows; ++row) {
      T value = alpha * sums[static_cast<size_t>(row)];
      if (p.beta != 0) {
        const int64_t at = batch * c.stride + column * c.leading + row;
        value += beta * static_cast<T>(load(c.type, c.data + at * size));
      }
      if (p.bias) {
        value += static_cast<T>(load(p.bias_type, p.bias + row * element_bytes(p.bias_type)));
      }
      store(d.type, d.data + (batch * d.stride + column * d.leading + row) * size, value);
    }
  }
}

}  // namespace

int64_t element_bytes(int type) { return type == kCudaReal64F ? 8 : type == kCudaReal32F ? 4 : 2; }
double scalar(int type, const void* value) {
  if (type == kCudaReal64F) {
    double v;
    std::memcpy(&v, value, 8);
    return v;
  }
  float v;
  std::memcpy(&v, value, 4);
  return v;
}

void multiply(const Product& product, const MatrixView& a, const MatrixView& b, const MatrixView& c,
              const MatrixView& d) {
  for (int64_t batch = 0; batch < d.batches; ++batch) {
    if (product.in_double) {
      multiply_in<double>(product, a, b, c, d, batch);
    } else {
      multiply_in<float>(product, a, b, c, d, batch);
    }
  }
}

}  // namespace tessera::emulated_gpu
