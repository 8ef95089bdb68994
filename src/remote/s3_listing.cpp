#include "remote/s3_listing.h"

#include <optional>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "remote/http_headers.h"
#include "remote/url.h"
#include "remote/xml_elements.h"

namespace tessera {
namespace {

constexpr size_t kMaxObjects = 1'000'000;

class Listing : XmlElements {
 public:
  Listing(std::string_view where, std::vector<S3Object>& objects)
      : where_(where), objects_(objects) {}

  std::string parse(std::string_view xml) {
    read(xml);
    if (!truncated_) fail("it does not say whether it is complete");
    if (*truncated_ && token_.empty()) fail("it is not complete and has no token to go on with");
    if (url_encoded_) {
      for (S3Object& object : std::span(objects_).subspan(first_)) {
        auto key = percent_decode(object.key, true);
        if (!key) fail("a key is not valid in its encoding");
        object.key = std::move(*key);
      }
    }
    return *truncated_ ? token_ : "";
  }

 private:
  [[noreturn]] void fail(std::string_view why) const override {
    throw UserError(cat("cannot use the listing of '", where_, "': ", why,
                        "; check that the endpoint is one of S3"));
  }

  void begins(const std::vector<std::string>& path) override {
    if (path.size() == 1 && path[0] != "ListBucketResult")
      fail(cat("it is no ListBucketResult but '", path[0].substr(0, 40), "'"));
    if (path.size() == 2 && path[1] == "Contents") {
      object_ = {};
      size_seen_ = false;
    }
  }

  void ended(const std::vector<std::string>& path, std::string_view text) override {
    const std::string& name = path.back();
    if (path.size() == 3 && path[1] == "Contents") {
      take_field(name, text);
    } else if (path.size() == 2 && name == "Contents") {
      if (object_.key.empty() || !size_seen_) fail("an object lacks its key or size");
      if (objects_.size() >= kMaxObjects) fail(cat("it has more than ", kMaxObjects, " objects"));
      objects_.push_back(std::move(object_));
    } else if (path.size() == 2 && name == "IsTruncated") {
      const std::string_view value = trim(text);
      if (value != "true" && value != "false") fail("IsTruncated is neither true nor false");
      truncated_ = value == "true";
    } else if (path.size() == 2 && name == "NextContinuationToken") {
      token_ = trim(text);
    } else if (path.size() == 2 && name == "EncodingType") {
      url_encoded_ = trim(text) == "url";
    }
  }

  void take_field(std::string_view name, std::string_view text) {
    if (name == "Key") object_.key = text;
    if (name == "LastModified") object_.modified = text.substr(0, 40);
    if (name == "ETag") object_.etag = parse_etag(text);
    if (name == "Size") {
      auto size = parse_number<uint64_t>(trim(text));
      if (!size || *size > uint64_t{1} << 60) fail("the size of an object is no number");
      object_.size = *size;
      size_seen_ = true;
    }
  }

  std::string_view where_;
  std::vector<S3Object>& objects_;
  size_t first_ = objects_.size();
  std::string token_;
  S3Object object_;
  bool size_seen_ = false, url_encoded_ = false;
  std::optional<bool> truncated_;
};

}  // namespace

std::string parse_s3_listing(std::string_view xml, std::string_view where,
                             std::vector<S3Object>& objects) {
  return Listing(where, objects).parse(xml);
}

}  // namespace tessera
