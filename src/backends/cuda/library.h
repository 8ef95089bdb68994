#pragma once
#include <span>
#include <string>

namespace tessera::cuda {

// Libraries that are found when the program runs, so that it starts without them: the driver,
// cublasLt, cuDNN, NCCL. They stay loaded to the end of the process.

// Where libraries are looked for before the system's places.
inline constexpr const char* kLibrariesVariable = "TESSERA_CUDA_LIBRARIES";
// Those that are not looked for at all: "cublasLt,cuDNN".
inline constexpr const char* kWithoutVariable = "TESSERA_CUDA_WITHOUT";

// A function of a library, as one calls it.
template <class Signature>
class Entry;
template <class Result, class... Parameters>
class Entry<Result(Parameters...)> {
 public:
  explicit Entry(const char* name) : name_(name) {}
  // The name in the library, for messages.
  const char* name() const { return name_; }
  Result operator()(Parameters... parameters) const { return function_(parameters...); }
  // Of a function that a library may lack: whether it is there.
  bool found() const { return function_ != nullptr; }
  void set(void* function) { function_ = reinterpret_cast<Result (*)(Parameters...)>(function); }

 private:
  const char* name_;
  Result (*function_)(Parameters...) = nullptr;
};

class Library {
 public:
  // The first of `names` that the folder of TESSERA_CUDA_LIBRARIES or the system has. DeviceError
  // "CUDA: no driver: ..." with what the loader says, where `what` is "driver".
  Library(std::string what, std::span<const char* const> names);

  const std::string& path() const { return path_; }
  // nullptr if the library has no such function.
  void* find(const char* name) const;
  // DeviceError that names library and function if it is missing.
  template <class Signature>
  void load(Entry<Signature>& entry) const {
    entry.set(require(entry.name()));
  }

 private:
  void* require(const char* name) const;

  std::string what_, path_;
  void* handle_ = nullptr;
};

}  // namespace tessera::cuda
