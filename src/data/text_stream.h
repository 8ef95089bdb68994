#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace tessera {

// The bytes of one file, unpacked if it is gzip (RFC 1952; recognised by its first two bytes): any
// number of members back to back, zeros allowed between and after them. UserError naming the file
// where it cannot be read, ends inside a member, or fails its checksum.
class TextStream {
 public:
  explicit TextStream(const std::filesystem::path& path);
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  // Up to `size` bytes, size > 0; 0 only at the end. Interrupted when that is requested.
  size_t read(char* out, size_t size);
  // Bytes of the file itself consumed so far.
  int64_t bytes_consumed() const;

 private:
  struct Inflater;
  void refill();
  size_t read_plain(char* out, size_t size);
  size_t read_gzip(char* out, size_t size);
  void skip_padding();

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<char> raw_;
  size_t begin_ = 0, end_ = 0;  // what is left in raw_
  int64_t loaded_ = 0;          // bytes read from the file
  bool at_end_ = false;         // the file has no more
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace tessera
