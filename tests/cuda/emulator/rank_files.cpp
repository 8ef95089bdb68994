#include "rank_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

namespace tessera::emulated_gpu {
namespace {

struct Places {
  std::vector<std::string> made;
  pid_t process = ::getpid();  // a fork is not the one that made them
};
Places& places() {
  static auto* all = new Places;
  return *all;
}

bool write_whole(int file, std::span<const std::byte> content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written <= 0) return false;
    content = content.subspan(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

RankFiles::RankFiles(std::string directory) : directory_(std::move(directory)) {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
}

std::string RankFiles::path(const std::string& name, int number) const {
  return directory_ + "/" + name + "." + std::to_string(number);
}

bool RankFiles::put(const std::string& name, int number, std::span<const std::byte> content) const {
  const std::string place = path(name, number);
  const std::string aside = place + ".of." + std::to_string(::getpid());
  const int file = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool written = write_whole(file, content);
  ::close(file);
  const bool given = written && ::link(aside.c_str(), place.c_str()) == 0;
  ::unlink(aside.c_str());
  return given;
}
bool RankFiles::put(const std::string& name, int number, const std::string& text) const {
  return put(name, number, std::as_bytes(std::span(text)));
}

bool RankFiles::has(const std::string& name, int number) const {
  return ::access(path(name, number).c_str(), R_OK) == 0;
}

std::optional<std::string> RankFiles::get(const std::string& name, int number) const {
  const int file = ::open(path(name, number).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  struct stat facts {};
  ::fstat(file, &facts);
  std::string text(static_cast<size_t>(facts.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(file, text.data() + have, text.size() - have);
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  ::close(file);
  return text;
}

void RankFiles::taken(const std::string& name, int count) const {
  const std::string place = directory_ + "/" + name + ".taken";
  const int file = ::open(place.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return;
  struct stat facts {};
  const bool written = ::write(file, "x", 1) == 1 && ::fstat(file, &facts) == 0;
  ::close(file);
  if (!written || facts.st_size < count) return;
  for (int number = 0; number < count; ++number) ::unlink(path(name, number).c_str());
  ::unlink(place.c_str());
}

std::string new_meeting_place() {
  static const int once = std::atexit(remove_meeting_places);
  static_cast<void>(once);
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error).string();
  // An id has room for 127 characters.
  constexpr size_t kLongest = 90;
  if (error || folder.size() > kLongest) folder = "/tmp";
  Places& all = places();
  all.made.push_back(folder + "/tessera-ranks-" + std::to_string(::getpid()) + "-" +
                     std::to_string(std::random_device()()));
  return all.made.back();
}

void remove_meeting_places() {
  Places& all = places();
  if (all.process != ::getpid()) return;
  std::error_code error;
  for (const std::string& place : all.made) std::filesystem::remove_all(place, error);
  all.made.clear();
}

}  // namespace tessera::emulated_gpu
