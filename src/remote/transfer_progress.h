#pragma once
#include <cstdint>
#include <string>

namespace tessera {

// Says in lines of the log how far files are that are fetched or written, if that takes long.
class TransferProgress {
 public:
  // `what`: what is done, "Fetching". `bytes` in all; 0: not known. `interval`: seconds between
  // lines, and before the first.
  TransferProgress(std::string what, uint64_t bytes, double interval);
  void add(const std::string& name, uint64_t bytes);

 private:
  std::string what_;
  uint64_t total_, done_ = 0;
  double interval_, start_, shown_;
};

}  // namespace tessera
