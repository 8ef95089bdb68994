#include "backends/cuda/cublaslt_products.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                          "libcublasLt.so"};
// Addresses of which algorithms make use.
constexpr uint32_t kAlignment = 16;

int cuda_type(DType dtype) { return dtype == DType::kBF16 ? kCudaReal16BF : kCudaReal32F; }

// What cublasLt has to be told of a product. Its matrices are column-major, so that what it
// multiplies are the transposes: c' = b' a'.
class Described {
 public:
  Described(const CublasLt& library, const ProductProblem& p) : library_(library) {
    library.call(library.matmul_desc_create, &product_, kCublasCompute32F, kCudaReal32F);
    set(kMatmulDescTransposeA, p.transpose_b ? kCublasOperationTranspose : kCublasOperationNone);
    set(kMatmulDescTransposeB, p.transpose_a ? kCublasOperationTranspose : kCublasOperationNone);
    if (p.bias) {
      set(kMatmulDescEpilogue, kEpilogueBias);
      set(kMatmulDescBiasDataType, cuda_type(p.operands));
    }
    layout(first_, p.operands, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
    layout(second_, p.operands, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
    layout(result_, p.result, p.n, p.m, p.ldc);
    beta_ = p.accumulate ? 1.0f : 0.0f;
  }
  ~Described() {
    for (cublasLtMatrixLayout made : {first_, second_, result_})
      if (made) library_.matrix_layout_destroy(made);
    if (product_) library_.matmul_desc_destroy(product_);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  // The best algorithm for addresses that are so aligned; none: the library has none.
  std::optional<cublasLtMatmulHeuristicResult> choose(cublasLtHandle handle,
                                                      uint32_t alignment) const {
    cublasLtMatmulPreference preference = nullptr;
    library_.call(library_.preference_create, &preference);
    auto prefer = [&](int attribute, const auto& value) {
      return library_.preference_set_attribute(preference, attribute, &value, sizeof(value));
    };
    cublasStatus status =
        prefer(kPreferenceMaxWorkspaceBytes, static_cast<uint64_t>(kLibraryWorkspaceBytes));
    const uint32_t schemes = kReductionSchemeNone | kReductionSchemeComputeType;
    if (!status) status = prefer(kPreferenceReductionSchemeMask, schemes);
    for (int attribute : {kPreferenceMinAlignmentA, kPreferenceMinAlignmentB,
                          kPreferenceMinAlignmentC, kPreferenceMinAlignmentD})
      if (!status) status = prefer(attribute, alignment);
    cublasLtMatmulHeuristicResult found{};
    int count = 0;
    if (!status)
      status = library_.algo_get_heuristic(handle, product_, first_, second_, result_, result_,
                                           preference, 1, &found, &count);
    library_.preference_destroy(preference);
    if (status || count == 0 || found.state) return std::nullopt;
    return found;
  }

  void run(cublasLtHandle handle, const cublasLtMatmulHeuristicResult& algorithm,
           const ProductArguments& a, CUstream stream) {
    const float alpha = 1;
    if (a.bias) set(kMatmulDescBiasPointer, a.bias);
    library_.call(library_.matmul, handle, product_, &alpha, a.b, first_, a.a, second_, &beta_, a.c,
                  result_, a.c, result_, &algorithm.algo, a.workspace, algorithm.workspace_bytes,
                  stream);
  }

 private:
  template <class T>
  void set(int attribute, T value) {
    library_.call(library_.matmul_desc_set_attribute, product_, attribute, &value, sizeof(value));
  }
  void layout(cublasLtMatrixLayout& made, DType dtype, int64_t rows, int64_t columns, int64_t ld) {
    library_.call(library_.matrix_layout_create, &made, cuda_type(dtype),
                  static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld);
  }

  const CublasLt& library_;
  cublasLtMatmulDesc product_ = nullptr;
  cublasLtMatrixLayout first_ = nullptr, second_ = nullptr, result_ = nullptr;
  float beta_ = 0;
};

bool aligned_to(const void* p, uint32_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

}  // namespace

const CublasLt& CublasLt::get() {
  static const CublasLt& library = *new CublasLt;
  return library;
}

CublasLt::CublasLt() : library_("cublasLt", kCublasLtNames) {
#define TESSERA_LOAD(result, library_name, own_name, parameters) library_.load(own_name);
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
}

std::string CublasLt::version() const {
  // 13.1.0 is 130100; before 12 it was 110100 for 11.1.0, in the same way.
  const size_t v = get_version();
  return cat(v / 10000, ".", v % 10000 / 100, ".", v % 100);
}

void CublasLt::fail(const char* name, cublasStatus status) const {
  const char* text = get_status_string(status);
  throw DeviceError(cat("cublasLt: ", name, ": ", text ? text : "", " (", status, ")"));
}

CublasLtProducts::CublasLtProducts(CudaDevice& device)
    : device_(device), library_(CublasLt::get()) {
  const auto guard = device.lock();
  library_.call(library_.create, &handle_);
}

CublasLtProducts::~CublasLtProducts() { library_.destroy(handle_); }

std::optional<Product> CublasLtProducts::make(const ProductProblem& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return std::nullopt;
  const auto guard = device_.lock();
  auto described = std::make_shared<Described>(library_, p);
  const auto any = described->choose(handle_, static_cast<uint32_t>(size_of(p.operands)));
  if (!any) return std::nullopt;
  const auto aligned = described->choose(handle_, kAlignment).value_or(*any);
  Product product;
  product.kernel = cat("cublasLt ", library_.version());
  product.workspace_bytes =
      static_cast<int64_t>(std::max(any->workspace_bytes, aligned.workspace_bytes));
  product.run = [this, described, any = *any, aligned](const ProductArguments& a) {
    const bool all_aligned = aligned_to(a.a, kAlignment) && aligned_to(a.b, kAlignment) &&
                             aligned_to(a.c, kAlignment) && aligned_to(a.bias, kAlignment);
    described->run(handle_, all_aligned ? aligned : any, a, device_.stream());
  };
  return product;
}

}  // namespace tessera::cuda
