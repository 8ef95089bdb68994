#include "comm/file_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "comm/file_descriptor.h"
#include "comm/health.h"

namespace tessera {

FileStore::FileStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  make_directories(folder_);
}

// Letters, digits, dots, dashes and underscores stay; any other byte is written as %hex.
std::filesystem::path FileStore::path_of(const std::string& key) const {
  std::string file;
  for (char c : key) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '.' || c == '-' || c == '_';
    file += plain ? std::string(1, c) : format("%%%02x", static_cast<unsigned char>(c));
  }
  return folder_ / file;
}

void FileStore::set(const std::string& key, std::string_view value) {
  write_file_atomic(path_of(key), value);
}

std::optional<std::string> FileStore::find(const std::string& key) {
  std::filesystem::path path = path_of(key);
  if (!std::filesystem::exists(path)) return std::nullopt;
  return read_file(path);
}

std::string FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  auto end = std::chrono::steady_clock::now() + timeout;
  std::chrono::milliseconds nap{1};
  while (true) {
    if (auto value = find(key)) return *value;
    if (std::chrono::steady_clock::now() >= end)
      throw CommError(cat("nobody set '", key, "' in the store ", folder_.string(), " within ",
                          seconds_text(timeout)));
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::milliseconds(16));
  }
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  std::filesystem::path path = path_of(key);
  FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || ::flock(fd.get(), LOCK_EX) != 0)
    throw UserError(cat("cannot write '", path.string(), "': ", std::strerror(errno)));
  char text[32];
  ssize_t size = ::pread(fd.get(), text, sizeof text, 0);
  int64_t value = 0;
  if (size > 0) std::from_chars(text, text + size, value);
  std::string next = std::to_string(value + amount);
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), next.data(), next.size(), 0) != static_cast<ssize_t>(next.size()))
    throw UserError(cat("cannot write '", path.string(), "': ", std::strerror(errno)));
  return value + amount;
}

}  // namespace tessera
