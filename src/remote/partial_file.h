#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tessera {

// How much of `path` is on the disk already, left by fetches that were cut off or in the hands of
// another process: it is gone on with, or makes room.
uint64_t begun_bytes(const std::filesystem::path& path);

// A file while it is fetched, beside where it will be. What an earlier fetch of the same content
// left when it was cut off is gone on with; no two processes do so with the same one. Left behind
// by a process that was killed it is called PATH.partial-CONTENT-SUFFIX (unique_suffix()), by one
// that gave up PATH.partial-CONTENT, where CONTENT is a hash of `identity`. What a killed one left
// is not gone on with after a restart of the machine: what was written last may be missing.
class PartialFile {
 public:
  // Of several contents that were begun at `path` only that of `identity` stays. Whole blocks of it
  // are kept. UserError where it cannot be written.
  PartialFile(std::filesystem::path path, const std::string& identity, uint64_t block_bytes);
  // Without commit() or discard() it is there for the next fetch.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  uint64_t kept() const { return kept_; }  // bytes that were there
  // Of what was kept. UserError where it cannot be read.
  void read(uint64_t offset, std::span<std::byte> out) const;
  // Appends. UserError where there is no room; then nothing is left behind.
  void write(std::span<const std::byte> bytes);
  void commit();
  void discard();

 private:
  void claim_leftover();
  void close();
  [[noreturn]] void fail(const char* what);

  std::filesystem::path path_, aside_, free_;
  uint64_t kept_ = 0;
  int fd_ = -1;
};

}  // namespace tessera
