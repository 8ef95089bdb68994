#pragma once
#include <cstddef>
#include <cstdint>

// d = alpha op(a) op(b) + beta c (+ bias of each row), as cublasLt defines it, on the host.
namespace tessera::emulated_gpu {

// In column-major order; `type` is a cudaDataType.
struct MatrixView {
  std::byte* data = nullptr;
  int type = 0;
  int64_t rows = 0, columns = 0, leading = 0, batches = 1, stride = 0;
};
struct Product {
  bool transpose_a = false, transpose_b = false;
  bool in_double = false;  // sums in f64, else in f32
  double alpha = 1, beta = 0;
  const std::byte* bias = nullptr;
  int bias_type = 0;
  int parts = 1;  // along the terms, each summed by itself, then added in ascending order
};

int64_t element_bytes(int type);
double scalar(int type, const void* value);
// Sums are in ascending order of terms, each term rounded before it is added; c is not read where
// beta is 0.
void multiply(const Product& product, const MatrixView& a, const MatrixView& b, const MatrixView& c,
              const MatrixView& d);

}  // namespace tessera::emulated_gpu
