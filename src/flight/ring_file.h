#pragma once
#include <cstddef>
#include <filesystem>

#include "flight/ring_format.h"

namespace tessera {

// The files of a rank in a directory of a flight recorder.
std::filesystem::path ring_path(const std::filesystem::path& directory, int rank);
std::filesystem::path texts_path(const std::filesystem::path& directory, int rank);
std::filesystem::path report_path(const std::filesystem::path& directory, int rank);

// A new ring, mapped to be written. Its blocks are there before the first event, so that a store
// cannot fail for want of them. UserError where it cannot be made.
class RingFile {
 public:
  RingFile(const std::filesystem::path& path, int64_t capacity);
  ~RingFile();
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  RingHeader& header() const { return *static_cast<RingHeader*>(memory_); }
  RingRecord* records() const {
    return reinterpret_cast<RingRecord*>(static_cast<std::byte*>(memory_) + sizeof(RingHeader));
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tessera
