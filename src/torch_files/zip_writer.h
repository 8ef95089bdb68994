#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Writes a zip archive of stored entries as torch.save does: contents begin at multiples of 64
// bytes, and lengths and checksums stand behind them, so that nothing is held in memory.
class ZipWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte> bytes)>;
  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  // An entry: begin(), write() as often as it takes, end().
  void begin(std::string name);
  void write(std::span<const std::byte> content);
  void end();
  void add(std::string name, std::string_view content);
  // The directory. Returns the bytes of the whole archive.
  uint64_t finish();

 private:
  struct Entry {
    std::string name;
    uint64_t header = 0, bytes = 0;
    uint32_t checksum = 0;
  };
  void emit(std::string_view bytes);

  Sink sink_;
  uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace tessera
