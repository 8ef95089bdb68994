#include "checkpoint/places.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "remote/s3_files.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxContentBytes = uint64_t{4} << 30;

// "2026-01-02T03:04:05.000Z"
std::optional<double> age_of_time(const std::string& text) {
  std::tm time{};
  if (!::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time)) return {};
  return std::max(0.0, std::difftime(std::time(nullptr), ::timegm(&time)));
}

// The first object whose name begins so, but for what follows the bucket.
std::optional<std::string> first_key(const std::string& prefix) {
  const std::vector<S3Object> objects = bucket_store().list(prefix, 1);
  return objects.empty() ? std::nullopt : std::optional(objects[0].key);
}

std::string with_slash(const fs::path& path) {
  std::string text = path.string();
  return text.ends_with('/') ? text : text + "/";
}

}  // namespace

bool is_in_bucket(const fs::path& path) { return path.native().starts_with("s3://"); }

S3Store& bucket_store() {
  static S3Store store(remote_options_from_environment());
  return store;
}

bool is_stored_file(const fs::path& path) {
  std::error_code ignored;
  if (!is_in_bucket(path)) return fs::is_regular_file(path, ignored);
  auto key = first_key(path.string());
  return key && path.string().ends_with("/" + *key);
}

bool is_stored_folder(const fs::path& path) {
  std::error_code ignored;
  if (!is_in_bucket(path)) return fs::is_directory(path, ignored);
  return first_key(with_slash(path)).has_value();
}

bool is_stored(const fs::path& path) {
  std::error_code ignored;
  if (!is_in_bucket(path)) return fs::exists(path, ignored);
  return is_stored_file(path) || is_stored_folder(path);
}

std::string read_content(const fs::path& path) {
  if (!is_in_bucket(path)) return read_file(path);
  auto content = bucket_store().read(path.string(), kMaxContentBytes);
  if (!content) throw UserError(cat("cannot read '", path.string(), "': there is no such object"));
  return std::move(content->text);
}

std::unique_ptr<ByteSource> open_content(const fs::path& path, uint64_t expected_bytes) {
  if (is_in_bucket(path)) return bucket_store().open(path.string(), expected_bytes);
  return std::make_unique<ReadFile>(path);
}

void write_content(const fs::path& path, std::string_view content) {
  if (!is_in_bucket(path)) return write_file_atomic(path, content);
  bucket_store().write(path.string(), content);
}

ContentWriter::ContentWriter(const fs::path& path, uint64_t bytes) {
  if (is_in_bucket(path))
    upload_ = std::make_unique<S3Upload>(bucket_store(), path.string(), bytes);
  else
    file_ = std::make_unique<AtomicFile>(path, Caching::kNone);
}

void ContentWriter::write(const void* data, size_t size) {
  if (upload_)
    upload_->write(data, size);
  else
    file_->write(data, size);
}

void ContentWriter::commit() {
  if (upload_)
    upload_->commit();
  else
    file_->commit();
}

std::vector<BucketFile> files_below(const fs::path& path) {
  const std::string prefix = with_slash(path);
  const size_t skipped = parse_s3_name(prefix).key.size();
  std::vector<BucketFile> files;
  for (const S3Object& object : bucket_store().list(prefix)) {
    if (object.key.ends_with('/')) continue;  // stands for a folder
    files.push_back({object.key.substr(skipped), object.size, age_of_time(object.modified)});
  }
  return files;
}

std::optional<double> age_of(const fs::path& path) {
  if (is_in_bucket(path)) {
    const std::vector<S3Object> objects = bucket_store().list(path.string(), 1);
    bool there = !objects.empty() && path.string().ends_with("/" + objects[0].key);
    return there ? age_of_time(objects[0].modified) : std::nullopt;
  }
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error) return {};
  const std::chrono::duration<double> age = fs::file_time_type::clock::now() - written;
  return std::max(0.0, age.count());
}

int64_t bytes_below(const fs::path& directory) {
  int64_t bytes = 0;
  if (is_in_bucket(directory)) {
    for (const BucketFile& file : files_below(directory)) bytes += static_cast<int64_t>(file.bytes);
    return bytes;
  }
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += static_cast<int64_t>(it->file_size(ignored));
  }
  return bytes;
}

}  // namespace tessera
