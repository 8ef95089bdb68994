#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// What readers take at most: bytes of a position within another one, and a count.
inline constexpr size_t kMostPositionBytes = size_t{64} << 10;
inline constexpr uint64_t kLargestValue = uint64_t{1} << 62;

// What a reader of kind `kind` needs to go on from a place, as bytes to keep: "TSRP", a byte of
// version, the kind, the values, and the XXH3 of all that. Little-endian.
class PositionWriter {
 public:
  explicit PositionWriter(char kind);
  void add(uint64_t value);
  void add(std::string_view bytes);
  std::string finish();

 private:
  std::string bytes_;
};

// Whether they were written as those of this kind; nothing of them is checked.
bool is_of_kind(std::string_view position, char kind);

// The values in the order in which they were added. UserError, naming `name`, where the bytes are
// damaged, of another kind or version, hold other values than are asked for, or a value exceeds its
// limit.
class PositionReader {
 public:
  // Both must live longer.
  PositionReader(std::string_view position, char kind, std::string_view name);
  uint64_t value(uint64_t limit);  // at most `limit`
  std::string_view bytes(size_t limit);
  void end();  // there must be nothing left
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string_view left_, name_;
};

}  // namespace tessera
