#pragma once
#include <cstring>
#include <string>

#include "backends/xla/pjrt_api.h"
#include "base/error.h"

namespace tessera::xla {

// What a plug-in says has gone wrong.
struct PluginError : DeviceError {
  PluginError(const std::string& message, pjrt::ErrorCode error_code)
      : DeviceError(message), code(error_code) {}
  pjrt::ErrorCode code;
};

// Arguments of a call, zeroed, with room behind them for what a newer plug-in's are longer by.
template <class Arguments>
class Call {
 public:
  Call() {
    std::memset(bytes_, 0, sizeof(bytes_));
    (*this)->head.struct_size = sizeof(bytes_);
  }
  Arguments* operator->() { return reinterpret_cast<Arguments*>(bytes_); }
  Arguments* get() { return reinterpret_cast<Arguments*>(bytes_); }

 private:
  static constexpr size_t kRoom = 512;
  alignas(16) std::byte bytes_[sizeof(Arguments) + kRoom];
};

// A shared library that runs StableHLO on a kind of device. It stays loaded to the end of the
// process, as such libraries demand.
class Plugin {
 public:
  // UserError that names the file: it is no library, or no plug-in, or of another major version.
  explicit Plugin(const std::string& path);

  const std::string& path() const { return path_; }
  // "0.81": of the interface.
  std::string version() const;
  bool has(pjrt::Function function) const;

  // PluginError, "compiling layers: ..." where `doing` is "compiling layers".
  template <class Arguments>
  void call(pjrt::Function function, Call<Arguments>& arguments, const std::string& doing) const {
    check(entry(function)(arguments.get()), doing);
  }
  // For destructors: what goes wrong there nobody can mend.
  template <class Arguments>
  void release(pjrt::Function function, Call<Arguments>& arguments) const noexcept {
    try {
      call(function, arguments, "freeing");
    } catch (const Error&) {
    }
  }
  // Waits for the event, destroys it, and throws what it says; nothing for nullptr.
  void await(pjrt::Event* event, const std::string& doing) const;

 private:
  pjrt::Api::Entry entry(pjrt::Function function) const;
  void check(pjrt::Error* error, const std::string& doing) const;

  std::string path_;
  const pjrt::Api* api_ = nullptr;
};

}  // namespace tessera::xla
