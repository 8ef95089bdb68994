#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "remote/s3_store.h"

namespace tessera {

// Where checkpoints are: under a path of this machine, or under s3://BUCKET/PREFIX. A bucket has no
// directories: a path in it is one if the name of any object begins with it and a slash. Nothing is
// renamed there, so what makes a checkpoint is its manifest alone, which is written last and
// removed first.

bool is_in_bucket(const std::filesystem::path& path);

// The bucket's server, with what the environment says of it when it is first asked for. May be
// replaced before anything is read or written, for tests.
S3Store& bucket_store();

// These three are as those of std::filesystem; what cannot be looked at is not there. In a bucket
// UserError when its server cannot be asked.
bool is_stored_file(const std::filesystem::path& path);
bool is_stored_folder(const std::filesystem::path& path);
bool is_stored(const std::filesystem::path& path);

// Whole file as bytes. UserError when it cannot be read.
std::string read_content(const std::filesystem::path& path);
// To read parts of. In a bucket it is taken for as long as `expected_bytes`.
std::unique_ptr<ByteSource> open_content(const std::filesystem::path& path,
                                         uint64_t expected_bytes);
// As write_file_atomic().
void write_content(const std::filesystem::path& path, std::string_view content);

// A file that is written in order and is there, whole, with commit(). `bytes`: at most so many
// follow.
class ContentWriter {
 public:
  ContentWriter(const std::filesystem::path& path, uint64_t bytes);
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::unique_ptr<AtomicFile> file_;
  std::unique_ptr<S3Upload> upload_;
};

// What lies under a path of a bucket.
struct BucketFile {
  std::string name;  // behind the path and a slash
  uint64_t bytes = 0;
  std::optional<double> age;  // seconds since it was written, by the clock of this machine
};
std::vector<BucketFile> files_below(const std::filesystem::path& path);

// How long ago a file was written, in seconds; nullopt where it is not there.
std::optional<double> age_of(const std::filesystem::path& path);

// Bytes of all files under a directory.
int64_t bytes_below(const std::filesystem::path& directory);

}  // namespace tessera
