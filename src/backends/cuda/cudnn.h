#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "backends/cuda/cudnn_api.h"
#include "backends/cuda/library.h"

namespace tessera::cuda {

// cuDNN as it is loaded.
class Cudnn {
 public:
  // DeviceError if this machine has none, or one older than kOldest.
  static const Cudnn& get();
  // The oldest version with which the graphs of this program were held against the library.
  static constexpr int64_t kOldest = 91900;

  int64_t version_number() const { return version_; }  // 91900: 9.19.0
  std::string version() const;                         // "9.19.0"
  const std::string& path() const { return library_.path(); }
  // Whether it is a double that works on the host, made for tests.
  bool emulated() const { return library_.find("tessera_emulated_gpu") != nullptr; }

  // DeviceError "cuDNN: cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED: ...", with what the
  // library says of its last error.
  template <class... Parameters, class... Given>
  void call(const Entry<cudnnStatus(Parameters...)>& entry, Given... given) const {
    if (const cudnnStatus status = entry(given...)) fail(entry.name(), status);
  }
  [[noreturn]] void fail(const char* name, cudnnStatus status) const;

#define TESSERA_MEMBER(result, library_name, own_name, parameters) \
  Entry<result parameters> own_name{#library_name};
  TESSERA_CUDNN_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

 private:
  Cudnn();
  Library library_;
  int64_t version_ = 0;
};

// A handle of cuDNN, of the context that is current when it is made.
class CudnnHandle {
 public:
  explicit CudnnHandle(const Cudnn& library) : library_(library) {
    library.call(library.create, &handle_);
  }
  ~CudnnHandle() { library_.destroy(handle_); }
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;
  cudnnHandle get() const { return handle_; }

 private:
  const Cudnn& library_;
  cudnnHandle handle_ = nullptr;
};

// A descriptor of cuDNN's backend interface. Errors of all calls are DeviceError.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& library, int type) : library_(&library) {
    library.call(library.create_descriptor, type, &descriptor_);
  }
  ~CudnnDescriptor() {
    if (descriptor_) library_->destroy_descriptor(descriptor_);
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), descriptor_(other.descriptor_) {
    other.descriptor_ = nullptr;
  }
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  cudnnDescriptor get() const { return descriptor_; }

  template <class T>
  void set(int name, int type, std::span<const T> values) {
    library_->call(library_->set_attribute, descriptor_, name, type, std::ssize(values),
                   static_cast<const void*>(values.data()));
  }
  template <class T>
  void set(int name, int type, const T& value) {
    set(name, type, std::span<const T>(&value, 1));
  }
  void set(int name, const CudnnDescriptor& other) {
    set(name, kCudnnTypeDescriptor, other.descriptor_);
  }
  void finalize() { library_->call(library_->finalize, descriptor_); }
  // Of one 64-bit number.
  int64_t number(int name) const;

 private:
  const Cudnn* library_;
  cudnnDescriptor descriptor_ = nullptr;
};

}  // namespace tessera::cuda
