#include "backends/cuda/cublaslt_products.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "plan/plan.h"

namespace tessera::cuda {
namespace {

constexpr const char* kCublasLtNames[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                          "libcublasLt.so"};

static_assert(kPlacedAlignment <= kBufferAlignment);

int cuda_type(DType dtype) { return dtype == DType::kBF16 ? kCudaReal16BF : kCudaReal32F; }

void* aligned_workspace(void* workspace) {
  constexpr uintptr_t kMultiple = kPlacedAlignment + kWorkspacePadding;
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + kMultiple - 1) /
                                 kMultiple * kMultiple);
}

// What cublasLt has to be told of a product. Its matrices are column-major, so that what it
// multiplies are the transposes: c' = b' a'.
class Described {
 public:
  Described(const CublasLt& library, const ProductProblem& p) : library_(library) {
    library.call(library.matmul_desc_create, &product_, kCublasCompute32F, kCudaReal32F);
    set(kMatmulDescTransposeA, p.transpose_b ? kCublasOperationTranspose : kCublasOperationNone);
    set(kMatmulDescTransposeB, p.transpose_a ? kCublasOperationTranspose : kCublasOperationNone);
    has_bias_ = p.bias;
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

  // The first algorithms of the library's own list, best first, for the problem's addresses and
  // with sums in a fixed order.
  std::vector<cublasLtMatmulHeuristicResult> propose(cublasLtHandle handle, const ProductProblem& p,
                                                     int most) const {
    cublasLtMatmulPreference preference = nullptr;
    library_.call(library_.preference_create, &preference);
    auto prefer = [&](int attribute, const auto& value) {
      return library_.preference_set_attribute(preference, attribute, &value, sizeof(value));
    };
    cublasStatus status = prefer(kPreferenceMaxWorkspaceBytes,
                                 static_cast<uint64_t>(kLibraryWorkspaceBytes - kWorkspacePadding));
    const uint32_t schemes = kReductionSchemeNone | kReductionSchemeComputeType;
    if (!status) status = prefer(kPreferenceReductionSchemeMask, schemes);
    // What it multiplies first is b.
    for (auto [attribute, alignment] : {std::pair(kPreferenceMinAlignmentA, p.align_b),
                                        {kPreferenceMinAlignmentB, p.align_a},
                                        {kPreferenceMinAlignmentC, p.align_c},
                                        {kPreferenceMinAlignmentD, p.align_c}})
      if (!status) status = prefer(attribute, static_cast<uint32_t>(alignment));
    std::vector<cublasLtMatmulHeuristicResult> found(static_cast<size_t>(most));
    int count = 0;
    if (!status)
      status = library_.algo_get_heuristic(handle, product_, first_, second_, result_, result_,
                                           preference, most, found.data(), &count);
    library_.preference_destroy(preference);
    found.resize(status ? 0 : static_cast<size_t>(count));
    std::erase_if(found, [](const auto& one) { return one.state != kCublasSuccess; });
    return found;
  }

  // What an algorithm that was kept needs on this device; "" or why it cannot be used.
  std::string check(cublasLtHandle handle, cublasLtMatmulHeuristicResult& kept) const {
    uint32_t scheme = 0;
    int32_t parts = 0;
    size_t written = 0;
    if (library_.algo_config_get_attribute(&kept.algo, kAlgoConfigReductionScheme, &scheme,
                                           sizeof(scheme), &written) ||
        library_.algo_config_get_attribute(&kept.algo, kAlgoConfigSplitK, &parts, sizeof(parts),
                                           &written))
      return "is no algorithm";
    if (parts > 1 && scheme != kReductionSchemeNone && scheme != kReductionSchemeComputeType)
      return "adds in an order that is not fixed";
    const cublasLtMatmulAlgo algorithm = kept.algo;
    const cublasStatus status =
        library_.algo_check(handle, product_, first_, second_, result_, result_, &algorithm, &kept);
    kept.algo = algorithm;
    const char* text = library_.get_status_string(status);
    return status ? cat("cannot be used: ", text ? text : "", " (", status, ")") : "";
  }

  void run(cublasLtHandle handle, const cublasLtMatmulHeuristicResult& algorithm,
           const ProductArguments& a, CUstream stream) {
    const float alpha = 1;
    if (has_bias_) set(kMatmulDescBiasPointer, a.bias);
    library_.call(library_.matmul, handle, product_, &alpha, a.b, first_, a.a, second_, &beta_, a.c,
                  result_, a.c, result_, &algorithm.algo, aligned_workspace(a.workspace),
                  algorithm.workspace_bytes, stream);
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
  bool has_bias_ = false;
};

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

CublasLtProducts::CublasLtProducts(CudaDevice& device, ProductChoices choices)
    : device_(device), library_(CublasLt::get()), choices_(std::move(choices)) {
  const auto guard = device.lock();
  library_.call(library_.create, &handle_);
  device_name_ = choice_device(device.facts().name);
}

CublasLtProducts::~CublasLtProducts() { library_.destroy(handle_); }

int64_t CublasLtProducts::measured_choices() const {
  return choices_.count(device_name_, static_cast<int64_t>(library_.get_version()));
}

std::vector<ProductChoice> CublasLtProducts::candidates(const ProductProblem& p, int most) {
  const auto guard = device_.lock();
  std::vector<ProductChoice> all;
  for (const cublasLtMatmulHeuristicResult& one :
       Described(library_, p).propose(handle_, p, most)) {
    ProductChoice choice{device_name_, static_cast<int64_t>(library_.get_version()), p,
                         static_cast<int64_t>(one.workspace_bytes)};
    std::ranges::copy(one.algo.data, choice.algorithm.begin());
    all.push_back(std::move(choice));
  }
  return all;
}

Product CublasLtProducts::product_of(const ProductChoice& choice, bool measured) {
  cublasLtMatmulHeuristicResult algorithm{};
  std::ranges::copy(choice.algorithm, algorithm.algo.data);
  algorithm.workspace_bytes = static_cast<size_t>(choice.workspace_bytes);
  return {cat("cublasLt ", library_.version(), measured ? ", measured" : ""),
          padded_workspace(choice.workspace_bytes),
          [this, described = std::make_shared<Described>(library_, choice.problem), algorithm,
           p = choice.problem](const ProductArguments& a) {
            check_alignment(p, a);
            described->run(handle_, algorithm, a, device_.stream());
          }};
}

Product CublasLtProducts::make(const ProductChoice& choice) {
  const auto guard = device_.lock();
  cublasLtMatmulHeuristicResult algorithm{};
  std::ranges::copy(choice.algorithm, algorithm.algo.data);
  std::string wrong = Described(library_, choice.problem).check(handle_, algorithm);
  const auto needed = static_cast<int64_t>(algorithm.workspace_bytes);
  if (wrong.empty() && needed > choice.workspace_bytes)
    wrong = cat("takes a workspace of ", needed, " bytes");
  if (wrong.empty()) return product_of(choice, true);
  ProductChoices one;
  one.add(choice);
  throw UserError(
      cat("the algorithm that was chosen for a product of cublasLt ", library_.version(), " ",
          wrong, "; leave out its line, or let tools/gpu_gate measure again:\n", one.to_text()));
}

std::optional<Product> CublasLtProducts::make(const ProductProblem& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return std::nullopt;
  const auto guard = device_.lock();
  const auto version = static_cast<int64_t>(library_.get_version());
  if (const ProductChoice* choice = choices_.find(device_name_, version, p)) return make(*choice);
  // Proposals are asked for once, so that a problem has one algorithm.
  if (!proposed_.find(device_name_, version, p)) {
    std::vector<ProductChoice> first = candidates(p, 1);
    if (first.empty()) return std::nullopt;
    proposed_.add(std::move(first[0]));
  }
  return product_of(*proposed_.find(device_name_, version, p), false);
}

}  // namespace tessera::cuda
