#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct S3Object {
  std::string key;
  uint64_t size = 0;
  std::string etag;      // without quotes
  std::string modified;  // as the server says it: "2026-01-02T03:04:05.000Z"; may be empty
};

// Adds the objects of one answer to ListObjectsV2 and returns the token with which the next one is
// asked for; empty after the last. UserError that names `where`: broken XML, a document type,
// depth, another form, numbers that are none.
std::string parse_s3_listing(std::string_view xml, std::string_view where,
                             std::vector<S3Object>& objects);

}  // namespace tessera
