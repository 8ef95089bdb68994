#pragma once
#include <string_view>
#include <vector>

#include "remote/options.h"
#include "remote/range_reader.h"
#include "remote/remote_entry.h"
#include "remote/s3_listing.h"

namespace tessera {

// s3://BUCKET/KEY; the key is taken byte by byte, nothing in it is decoded.
struct S3Name {
  std::string bucket, key;  // the key may be empty
};
// UserError that shows the form.
S3Name parse_s3_name(std::string_view text);

// Where it is; size, ETag and identity are left out.
RemoteLocation s3_location(const S3Name& name, const S3Settings& settings);

// The objects whose keys begin with `name.key`, in the order of the keys, at most `most`. UserError
// as send_request().
std::vector<S3Object> list_s3_objects(const S3Name& name, const RemoteOptions& options,
                                      size_t most = SIZE_MAX);

// The objects whose keys begin with `name.key`, which is empty or ends in '/', by key. Paths are
// what follows it; keys that end in '/' stand for directories and are left out. UserError as
// send_request(); also where there are none.
std::vector<RemoteEntry> list_s3_files(const S3Name& name, const RemoteOptions& options);

}  // namespace tessera
