#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// The frames of a `.wandb` file: LevelDB's log format behind a header of 7 bytes, in blocks of
// 32 KiB. A record is one fragment, or several where it would cross the end of a block; each has a
// CRC-32 (zlib's) of its type and bytes, its length and its type in front.
class WandbLog {
 public:
  // The file's first bytes.
  std::string header();
  // What is to be appended for a record.
  std::string frame(std::string_view record);

 private:
  void add_fragment(std::string& out, char type, std::string_view bytes);
  int64_t position_ = 0;
};

}  // namespace tessera
