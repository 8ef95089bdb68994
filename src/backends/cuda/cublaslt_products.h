#pragma once
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/cublaslt_api.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/product_choices.h"

namespace tessera::cuda {

// cuBLAS's light interface, as it is loaded.
class CublasLt {
 public:
  // DeviceError if this machine has none.
  static const CublasLt& get();
  std::string version() const;  // "13.1.0"
  const std::string& path() const { return library_.path(); }

  // DeviceError "cublasLt: cublasLtMatmul: not supported".
  template <class... Parameters, class... Given>
  void call(const Entry<cublasStatus(Parameters...)>& entry, Given... given) const {
    if (const cublasStatus status = entry(given...)) fail(entry.name(), status);
  }
  [[noreturn]] void fail(const char* name, cublasStatus status) const;

#define TESSERA_MEMBER(result, library_name, own_name, parameters) \
  Entry<result parameters> own_name{#library_name};
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

 private:
  CublasLt();
  Library library_;
};

// Products by cublasLt. The algorithm of a product follows from the problem alone: it is that which
// a tuner chose for this device and version, else the first of the library's own list; and one
// whose sums are in an order that is always the same.
class CublasLtProducts {
 public:
  explicit CublasLtProducts(CudaDevice& device, ProductChoices choices = {});
  ~CublasLtProducts();
  CublasLtProducts(const CublasLtProducts&) = delete;
  CublasLtProducts& operator=(const CublasLtProducts&) = delete;

  // Nothing where the library has no algorithm. Products are not used behind the end of this.
  std::optional<Product> make(const ProductProblem& problem);
  // By a given algorithm: UserError where the device does not take it, it needs more workspace than
  // the choice says, or its sums are in no fixed order.
  Product make(const ProductChoice& choice);
  // What a tuner chooses from, as the library proposes it, best first; without times.
  std::vector<ProductChoice> candidates(const ProductProblem& problem, int most);
  int64_t measured_choices() const;  // of this device and version

 private:
  Product product_of(const ProductChoice& choice, bool measured);

  CudaDevice& device_;
  const CublasLt& library_;
  ProductChoices choices_, proposed_;
  std::string device_name_;
  cublasLtHandle handle_ = nullptr;
};

}  // namespace tessera::cuda
