#include "backends/cuda/cudnn.h"

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kCudnnNames[] = {"libcudnn.so.9", "libcudnn.so"};

std::string version_text(int64_t v) { return cat(v / 10000, ".", v % 10000 / 100, ".", v % 100); }

}  // namespace

const Cudnn& Cudnn::get() {
  static const Cudnn& library = *new Cudnn;
  return library;
}

Cudnn::Cudnn() : library_("cuDNN", kCudnnNames) {
#define TESSERA_LOAD(result, library_name, own_name, parameters) library_.load(own_name);
  TESSERA_CUDNN_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
  version_ = static_cast<int64_t>(get_version());
  if (version_ < kOldest)
    throw DeviceError(cat("CUDA: cuDNN ", version(), " ('", path(),
                          "') is too old: ", version_text(kOldest), " or later is needed"));
}

std::string Cudnn::version() const { return version_text(version_); }

void Cudnn::fail(const char* name, cudnnStatus status) const {
  const char* text = get_error_string(status);
  std::array<char, 1024> last{};
  get_last_error_string(last.data(), last.size() - 1);
  throw DeviceError(cat("cuDNN: ", name, ": ", text ? text : "", " (", status, ")",
                        last[0] ? ": " : "", last.data()));
}

int64_t CudnnDescriptor::number(int name) const {
  int64_t value = 0, count = 0;
  library_->call(library_->get_attribute, descriptor_, name, kCudnnTypeInt64, int64_t{1}, &count,
                 static_cast<void*>(&value));
  return value;
}

}  // namespace tessera::cuda
