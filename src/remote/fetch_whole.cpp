#include "remote/fetch_whole.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "remote/partial_file.h"
#include "remote/range_lock.h"
#include "remote/url.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_there(const fs::path& path, std::optional<uint64_t> size) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  return !size || fs::file_size(path, error) == *size;
}

// Runs `fetch` unless the file is there, or comes while another process fetches it, which is waited
// for as long as it goes on. Locks are bytes of one file, by the hashes of paths: nothing of them
// is left behind.
void fetch_once(const fs::path& path, std::optional<uint64_t> size, const std::string& name,
                const RemoteOptions& options, const std::function<void()>& fetch) {
  if (is_there(path, size)) return;
  if (!path.parent_path().empty()) make_directories(path.parent_path());
  std::error_code ignored;
  fs::create_directories(options.cache_directory, ignored);
  const fs::path locks = options.cache_directory / "fetch.lock";
  const uint64_t number = hash_text(fs::weakly_canonical(path, ignored).string()) >> 2;
  uint64_t begun = begun_bytes(path);
  auto lock = std::make_unique<RangeLock>(locks, number, 0);
  if (lock->waited_in_vain())
    TESSERA_INFO(cat("'", name, "' is being fetched by another process: waiting for it"));
  while (lock->waited_in_vain()) {
    lock = std::make_unique<RangeLock>(locks, number, options.lock_deadline);
    const uint64_t now = begun_bytes(path);
    if (lock->waited_in_vain() && now <= begun) {
      TESSERA_WARN(cat("another process that fetches '", name, "' has not gone on for ",
                       format_duration(options.lock_deadline), "; it is fetched here as well"));
      break;
    }
    begun = now;
  }
  if (is_there(path, size)) return;
  remove_leftovers_of(path);
  fetch();
}

// The hash that is known of the content, checked while it is written.
class ContentCheck {
 public:
  ContentCheck(const RemoteEntry& entry, const std::string& name)
      : expected_(!entry.sha256.empty() ? entry.sha256 : entry.git_sha1),
        name_(name),
        digest_(!entry.sha256.empty() ? Digest::kSha256 : Digest::kSha1) {
    if (entry.sha256.empty()) digest_.add(cat("blob ", entry.size, '\0'));
  }
  void add(std::span<const std::byte> bytes) {
    if (!expected_.empty())
      digest_.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void finish() {
    if (expected_.empty()) return;
    std::string found = hex(digest_.finish());
    if (found != expected_) {
      throw UserError(cat("'", name_, "' arrived with the hash ", found, " instead of ", expected_,
                          ": it was damaged on the way, or on its server; fetch it again"));
    }
  }

 private:
  std::string expected_;
  const std::string& name_;
  DigestStream digest_;
};

// The links that the hub gives for its files lead to other servers; it is the address that counts.
void require_online(const RemoteLocation& location, const RemoteOptions& options) {
  if (!options.hub.offline ||
      !same_origin(parse_url(location.url), parse_url(options.hub.endpoint)))
    return;
  throw UserError(cat("'", location.name,
                      "' has not been fetched, and HF_HUB_OFFLINE lets nothing "
                      "be fetched; unset it, or fetch it where there is a network"));
}

}  // namespace

void fetch_whole(const RemoteLocation& location, const RemoteEntry& entry, const fs::path& path,
                 const RemoteOptions& options, TransferProgress* progress) {
  fetch_once(path, location.size, location.name, options, [&] {
    require_online(location, options);
    RangeReader reader(location, options.http);
    PartialFile file(
        path, cat(location.identity, "\n", entry.sha256, entry.git_sha1, "\n", location.size),
        options.block_bytes);
    if (file.kept() > 0) {
      TESSERA_INFO(cat("Fetching '", location.name, "' goes on behind ",
                       format_bytes(static_cast<int64_t>(file.kept()))));
    }
    ContentCheck check(entry, location.name);
    std::vector<std::byte> part(static_cast<size_t>(std::min(options.block_bytes, location.size)));
    for (uint64_t offset = 0; offset < location.size; offset += part.size()) {
      check_interruption();
      part.resize(static_cast<size_t>(std::min<uint64_t>(part.size(), location.size - offset)));
      if (offset < file.kept()) {
        file.read(offset, part);
      } else {
        reader.read(offset, part);
        file.write(part);
      }
      check.add(part);
      if (progress) progress->add(location.name, part.size());
    }
    try {
      check.finish();
    } catch (const UserError&) {
      file.discard();
      throw;
    }
    file.commit();
  });
}

void fetch_in_one_piece(const RemoteProbe& probe, const fs::path& path,
                        const RemoteOptions& options, TransferProgress* progress) {
  const RemoteLocation& location = probe.location;
  fetch_once(path, probe.whole_size, location.name, options, [&] {
    // AtomicFile only appends; an attempt that fails begins again at the front.
    fs::path aside = path;
    aside += ".tmp-" + unique_suffix();
    int fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
      throw UserError(cat("cannot create '", aside.string(), "': ", std::strerror(errno)));
    struct Cleanup {
      int fd;
      const fs::path& path;
      ~Cleanup() {
        ::close(fd);
        ::unlink(path.c_str());
      }
    } cleanup{fd, aside};
    auto fail = [&] {
      throw UserError(cat("cannot write '", path.string(), "': ", std::strerror(errno),
                          "; make room, or take another directory for the cache"));
    };
    HttpRequest request = request_for(location);
    request.max_body = uint64_t{1} << 40;
    request.sink = [&](uint64_t offset, std::string_view piece) {
      if (progress) progress->add(location.name, piece.size());
      if (offset == 0 && (::ftruncate(fd, 0) != 0 || ::lseek(fd, 0, SEEK_SET) != 0)) fail();
      if (write_fully(fd, piece) < piece.size()) fail();
    };
    request.flaw = [&](const HttpResponse& response) {
      bool whole = !probe.whole_size || *probe.whole_size == response.body_bytes;
      return whole ? ""
                   : cat("it has ", response.body_bytes, " bytes instead of ", *probe.whole_size);
    };
    HttpResponse response = send_request(request, options.http);
    if (response.status != 200) refuse_location(location, request, response);
    if (response.body_bytes == 0 && ::ftruncate(fd, 0) != 0) fail();
    if (::fsync(fd) != 0 || ::rename(aside.c_str(), path.c_str()) != 0) fail();
    sync_directory(path.parent_path());
  });
}

}  // namespace tessera
