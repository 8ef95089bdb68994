#pragma once
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "backends/cuda/cudnn_api.h"
#include "handles.h"

// What callers of the double of cuDNN make: handles, and descriptors with attributes.
using namespace tessera::cuda;  // NOLINT: the parameters of what is exported
extern "C" {
#pragma GCC visibility push(default)
#define TESSERA_EXPORTED(result, name, member, parameters) result name parameters;
TESSERA_CUDNN_FUNCTIONS(TESSERA_EXPORTED)
#undef TESSERA_EXPORTED
#pragma GCC visibility pop
}

namespace tessera::emulated_gpu {

struct CudnnLibrary {
  int device = -1;
  CUstream stream = nullptr;
  bool destroyed = false;
};
struct CudnnObject {
  int type = 0;
  bool finalized = false, destroyed = false;
  std::map<int, std::vector<std::byte>> attributes;

  bool has(int name) const { return attributes.contains(name); }
  template <class T>
  std::vector<T> all(int name) const {
    auto at = attributes.find(name);
    if (at == attributes.end()) return {};
    std::vector<T> values(at->second.size() / sizeof(T));
    // vector<bool> is not asked for: attributes of bool are read as bytes.
    if (!values.empty()) std::memcpy(values.data(), at->second.data(), at->second.size());
    return values;
  }
  template <class T>
  T one(int name, T otherwise = {}) const {
    const std::vector<T> values = all<T>(name);
    return values.empty() ? otherwise : values[0];
  }
};
struct CudnnObjects {
  std::deque<CudnnLibrary> libraries;
  std::deque<CudnnObject> descriptors;
};
CudnnObjects& cudnn_objects();

// The live object of a descriptor that an attribute holds; such are known to be live when they are
// set, and may be gone by then.
const CudnnObject& cudnn_object(cudnnDescriptor descriptor);

// A finding; kCudnnBadParam.
cudnnStatus cudnn_wrong(const std::string& what);
// What the caller is told without a finding: the library may well decline.
cudnnStatus cudnn_declined(const std::string& why, cudnnStatus status = kCudnnNotSupported);

}  // namespace tessera::emulated_gpu
