#pragma once
#include <vector>

#include "backends/cuda/products.h"

namespace tessera::cuda {

// A share of a product, with where its operands begin behind those of the whole, in bytes.
struct ProductPart {
  ProductProblem problem;
  int64_t a = 0, b = 0, c = 0, bias = 0;
};

// cublasLt is several times slower where rows of a matrix, in memory, are no multiple of 16 bytes
// long, even if all of them begin at one: a head of 50,257 classes takes an H100 as long as one of
// three times as many. Products of such long rows are made in parts: all but the last few elements,
// and those. What is left of k comes first, so that the larger part is rounded once. One part, the
// problem itself, where rows are short, are such a multiple, or begin anywhere.
std::vector<ProductPart> aligned_parts(const ProductProblem& problem);

// By `make`, part by part, or none where it does not take one of them. All parts are asked for.
MakeProduct in_aligned_parts(MakeProduct make);

}  // namespace tessera::cuda
