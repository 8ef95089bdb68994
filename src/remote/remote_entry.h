#pragma once
#include <cstdint>
#include <string>

namespace tessera {

// One file of those that a name stands for, pinned: what is read under it later is the same content
// or an error.
struct RemoteEntry {
  std::string path;    // in the directory, bucket or repository that was listed, '/' between parts
  std::string url;     // a path of this machine, http(s)://..., or s3://BUCKET/KEY
  uint64_t size = 0;   // bytes
  std::string etag;    // of S3 and web servers, without quotes; may be empty
  std::string sha256;  // 64 lower-case hexadecimal digits, or empty: not known
  std::string git_sha1;  // of "blob SIZE\0" and the content: 40 digits, or empty
  std::string revision;  // the commit on the hub: 40 digits, or empty
  std::string split;     // that the card of a repository gives it; empty: its name tells
};

}  // namespace tessera
