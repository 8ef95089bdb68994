#include "doctor/directory_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kPiece = 4 << 20;

std::vector<std::string> together(Control* control, const std::string& text) {
  return control ? control->exchange("directory", text) : std::vector{text};
}

// A file that goes when it is not needed any more.
struct ScratchFile {
  fs::path path;
  ~ScratchFile() {
    std::error_code ignored;
    if (!path.empty()) fs::remove(path, ignored);
  }
};

// Bytes a second of writing, flushed, and of reading.
Json rates(const fs::path& path, int64_t bytes) {
  ScratchFile scratch{path};
  struct Piece {
    alignas(4096) std::byte bytes[kPiece];
  };
  const auto piece = std::make_unique<Piece>();
  const auto size = static_cast<size_t>(bytes);
  std::fill(std::begin(piece->bytes), std::end(piece->bytes), std::byte{0x5a});
  double start = monotonic_seconds();
  {
    AtomicFile file(path, Caching::kNone);
    for (size_t done = 0; done < size; done += kPiece)
      file.write(piece->bytes, std::min(kPiece, size - done));
    file.commit();
  }
  const double writing = monotonic_seconds() - start;
  if (int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); fd >= 0) {
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // where it was written through the page cache
    ::close(fd);
  }
  start = monotonic_seconds();
  ReadFile file(path);
  for (size_t done = 0; done < size; done += kPiece)
    file.read(done, std::span(piece->bytes).first(std::min(kPiece, size - done)));
  const double reading = monotonic_seconds() - start;
  return {{"write", static_cast<double>(bytes) / writing},
          {"read", static_cast<double>(bytes) / reading},
          {"free", fs::space(path).available}};
}

}  // namespace

Json check_directory(Control* control, const std::string& directory, int64_t bytes) {
  const int rank = control ? control->rank() : 0;
  Json own;
  auto noting = [&](auto work) {
    try {
      work();
    } catch (const UserError& error) {
      own = {{"error", error.what()}};
    } catch (const fs::filesystem_error& error) {
      own = {{"error", error.what()}};
    }
  };
  ScratchFile shared;
  const std::string name = ".tessera-doctor-" + hex(secret_random_bytes(8));
  noting([&] {
    if (rank > 0) return;
    shared.path = fs::path(directory) / name;
    write_file_atomic(shared.path, name);
  });
  // That of the first rank; "" where it could not write the file.
  const std::string first = together(control, own.contains("error") ? "" : name)[0];
  std::error_code ignored;
  const bool seen = fs::exists(fs::path(directory) / first, ignored);
  noting([&] {
    if (own.contains("error")) return;
    own = rates(fs::path(directory) / (name + "-" + std::to_string(rank)), bytes);
    if (!first.empty()) own["sees_same_files"] = seen;
  });
  Json all = Json::array();
  // JSON takes UTF-8 only, and names of files may be anything.
  const std::string text = own.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (const std::string& one : together(control, text)) all.push_back(Json::parse(one));
  return all;
}

}  // namespace tessera
