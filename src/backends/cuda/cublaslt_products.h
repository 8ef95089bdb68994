#pragma once
#include <memory>
#include <optional>
#include <string>

#include "backends/cuda/cublaslt_api.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/products.h"

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

// Products by cublasLt. The algorithm of a product is the first of the library's own list, chosen
// once when the product is made, and one whose sums are in an order that is always the same.
class CublasLtProducts {
 public:
  explicit CublasLtProducts(CudaDevice& device);
  ~CublasLtProducts();
  CublasLtProducts(const CublasLtProducts&) = delete;
  CublasLtProducts& operator=(const CublasLtProducts&) = delete;

  // Nothing where the library has no algorithm. Products are not used behind the end of this.
  std::optional<Product> make(const ProductProblem& problem);

 private:
  CudaDevice& device_;
  const CublasLt& library_;
  cublasLtHandle handle_ = nullptr;
};

}  // namespace tessera::cuda
