#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "remote/http_client.h"

namespace tessera {

// A file on a server, of known size.
struct RemoteLocation {
  std::string name;           // for messages, as the user knows it
  std::string url;            // http(s); may redirect to a link that expires
  std::string authorization;  // for the origin of `url` alone; may be empty
  std::optional<AwsCredentials> sign_as;
  std::string identity;  // equal only for equal content, today and in a year
  bool lasts = true;     // else `identity` is one of this process: nothing tells its versions apart
  uint64_t size = 0;
  std::string etag;           // what an answer with a tag must have; empty: not compared
  std::string denied_advice;  // what to do about 401, 403 and 404
};

// A request for it, signed or with its authorization. Points into `location`.
HttpRequest request_for(const RemoteLocation& location);

// The UserError for an answer to it that is of no use.
[[noreturn]] void refuse_location(const RemoteLocation& location, const HttpRequest& request,
                                  const HttpResponse& response);

// The UserError for a file that had `size` bytes and `etag`, and is another one now; `now`: its
// tag.
[[noreturn]] void refuse_changed(const std::string& name, uint64_t size, const std::string& etag,
                                 const std::string& now);

// Reads parts of it by Range, from many threads at once. Where `url` redirects, the target is kept
// and asked directly, until it refuses: then the link has expired, and `url` is asked again.
class RangeReader {
 public:
  RangeReader(RemoteLocation location, HttpSettings settings);
  const RemoteLocation& location() const { return location_; }

  // Fills `out` with the bytes from `offset` on, which the file must have. UserError as
  // send_request(); also where the server does not answer parts, answers other parts than those
  // asked for, or the file is not the same any more. Interrupted; also when `cancel` is set.
  void read(uint64_t offset, std::span<std::byte> out,
            const std::atomic<bool>* cancel = nullptr) const;

 private:
  HttpRequest request(uint64_t offset, std::span<std::byte> out,
                      const std::atomic<bool>* cancel) const;

  RemoteLocation location_;
  HttpSettings settings_;
  mutable std::mutex mutex_;
  mutable std::string direct_url_, direct_authorization_;
};

// What a server says of a file at `location.url`, of which size, etag and identity are found out.
struct RemoteProbe {
  RemoteLocation location;
  bool answers_parts = false;          // else `location.size` may be unknown
  std::optional<uint64_t> whole_size;  // of a server that does not answer parts, if it says so
};

// By a request for the first byte, which links for one method (GET) allow as well. UserError where
// there is no such file.
RemoteProbe probe_location(RemoteLocation location, const HttpSettings& settings);
// nullopt where the server says that there is none (404, 410). S3 and others say 403 to whoever may
// not list: of a file that is `optional` that counts as none, too.
std::optional<RemoteProbe> find_location(RemoteLocation location, const HttpSettings& settings,
                                         bool optional);

}  // namespace tessera
