#include "backends/cuda/product_parts.h"

#include <initializer_list>

namespace tessera::cuda {
namespace {

constexpr int64_t kRowBytes = 16;
constexpr int64_t kShortest = 1024;  // below, a second product costs more than it saves

int64_t multiple_of(const ProductProblem& p) { return kRowBytes / size_of(p.operands); }

// Of rows that begin `leading` elements apart.
bool is_split(int64_t extent, int64_t multiple, std::initializer_list<int64_t> leading) {
  return extent >= kShortest && extent % multiple != 0 &&
         std::ranges::all_of(leading, [=](int64_t ld) { return ld % multiple == 0; });
}

int64_t aligned_by(int64_t alignment, int64_t offset) {
  return std::min(alignment, alignment_of(offset));
}

// `part` from element `begin` of a dim on: `steps` bytes an element in a, b, c and the bias.
struct Steps {
  int64_t a = 0, b = 0, c = 0, bias = 0;
};
ProductPart behind(const ProductPart& part, int64_t begin, const Steps& steps) {
  ProductPart p = part;
  p.a += begin * steps.a;
  p.b += begin * steps.b;
  p.c += begin * steps.c;
  p.bias += begin * steps.bias;
  p.problem.align_a = aligned_by(p.problem.align_a, begin * steps.a);
  p.problem.align_b = aligned_by(p.problem.align_b, begin * steps.b);
  p.problem.align_c = aligned_by(p.problem.align_c, begin * steps.c);
  return p;
}

// Every part in two along the dim of extent `extent`.
std::vector<ProductPart> split(const std::vector<ProductPart>& parts,
                               int64_t ProductProblem::*extent, const Steps& steps) {
  std::vector<ProductPart> all;
  for (const ProductPart& part : parts) {
    const int64_t whole = part.problem.*extent, most = whole - whole % multiple_of(part.problem);
    ProductPart first = part, rest = behind(part, most, steps);
    first.problem.*extent = most;
    rest.problem.*extent = whole - most;
    if (extent == &ProductProblem::k) {
      rest.problem.bias = false;
      first.problem.accumulate = true;
      std::swap(first, rest);
    }
    all.push_back(first);
    all.push_back(rest);
  }
  return all;
}

}  // namespace

std::vector<ProductPart> aligned_parts(const ProductProblem& p) {
  const int64_t in = size_of(p.operands), out = size_of(p.result);
  std::vector<ProductPart> parts{{.problem = p}};
  if (p.align_a % kRowBytes != 0 || p.align_b % kRowBytes != 0 || p.align_c % kRowBytes != 0)
    return parts;
  const int64_t multiple = multiple_of(p);
  // The dims along which rows lie, with the leading dims of what has rows along them.
  if (p.transpose_a && is_split(p.m, multiple, {p.lda}))
    parts = split(parts, &ProductProblem::m, {.a = in, .c = p.ldc * out});
  if (is_split(p.n, multiple, {p.ldc, p.transpose_b ? 0 : p.ldb}))
    parts = split(parts, &ProductProblem::n,
                  {.b = p.transpose_b ? p.ldb * in : in, .c = out, .bias = in});
  if ((!p.transpose_a || p.transpose_b) &&
      is_split(p.k, multiple, {p.transpose_a ? 0 : p.lda, p.transpose_b ? p.ldb : 0}))
    parts = split(parts, &ProductProblem::k,
                  {.a = p.transpose_a ? p.lda * in : in, .b = p.transpose_b ? in : p.ldb * in});
  return parts;
}

MakeProduct in_aligned_parts(MakeProduct make) {
  return [make = std::move(make)](const ProductProblem& problem) -> std::optional<Product> {
    const std::vector<ProductPart> parts = aligned_parts(problem);
    if (parts.size() == 1) return make(problem);
    std::vector<Product> products;
    Product whole;
    for (const ProductPart& part : parts) {
      std::optional<Product> product = make(part.problem);
      if (!product) continue;
      // The name of the largest.
      if (part.problem.m * part.problem.n * part.problem.k * 2 > problem.m * problem.n * problem.k)
        whole.kernel = product->kernel;
      whole.workspace_bytes = std::max(whole.workspace_bytes, product->workspace_bytes);
      products.push_back(std::move(*product));
    }
    if (products.size() < parts.size()) return std::nullopt;
    whole.run = [parts, products = std::move(products)](const ProductArguments& a) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const ProductPart& part = parts[i];
        const auto moved = [](const void* p, int64_t bytes) {
          return p ? static_cast<const std::byte*>(p) + bytes : nullptr;
        };
        products[i].run({moved(a.a, part.a), moved(a.b, part.b),
                         static_cast<std::byte*>(a.c) + part.c, moved(a.bias, part.bias),
                         a.workspace});
      }
    };
    return whole;
  };
}

}  // namespace tessera::cuda
