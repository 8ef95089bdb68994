#include "remote/s3_listing.h"

#include <expat.h>

#include <exception>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "remote/http_headers.h"
#include "remote/url.h"

namespace tessera {
namespace {

constexpr size_t kMaxObjects = 1'000'000;
constexpr size_t kMaxDepth = 8;
constexpr size_t kMaxTextBytes = 8192;

class Listing {
 public:
  Listing(std::string_view where, std::vector<S3Object>& objects)
      : where_(where), objects_(objects), parser_(::XML_ParserCreate(nullptr), ::XML_ParserFree) {
    if (!parser_) throw DeviceError("no memory for a parser of XML");
    ::XML_SetUserData(parser_.get(), this);
    ::XML_SetElementHandler(
        parser_.get(),
        [](void* self, const char* name, const char**) {
          static_cast<Listing*>(self)->call([name](Listing& listing) { listing.begin(name); });
        },
        [](void* self, const char*) {
          static_cast<Listing*>(self)->call([](Listing& listing) { listing.end(); });
        });
    ::XML_SetCharacterDataHandler(parser_.get(), [](void* self, const char* text, int size) {
      std::string_view piece(text, static_cast<size_t>(size));
      static_cast<Listing*>(self)->call([piece](Listing& listing) { listing.add(piece); });
    });
    // Where there is no document type there are no entities that grow.
    ::XML_SetStartDoctypeDeclHandler(
        parser_.get(), [](void* self, const char*, const char*, const char*, int) {
          static_cast<Listing*>(self)->call([](Listing& listing) {
            listing.fail("it declares a document type, which a listing never has");
          });
        });
  }

  std::string parse(std::string_view xml) {
    auto status = ::XML_Parse(parser_.get(), xml.data(), static_cast<int>(xml.size()), 1);
    if (error_) std::rethrow_exception(error_);
    if (status != XML_STATUS_OK)
      fail(cat("broken XML in line ", ::XML_GetCurrentLineNumber(parser_.get()), ": ",
               ::XML_ErrorString(::XML_GetErrorCode(parser_.get()))));
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
  [[noreturn]] void fail(std::string_view why) const {
    throw UserError(cat("cannot use the listing of '", where_, "': ", why,
                        "; check that the endpoint is one of S3"));
  }

  // No exception may pass through the parser.
  template <class Action>
  void call(Action action) {
    if (error_) return;
    try {
      action(*this);
    } catch (...) {
      error_ = std::current_exception();
      ::XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  void begin(std::string_view name) {
    if (path_.size() >= kMaxDepth) fail("it is nested too deeply");
    if (path_.empty() && name != "ListBucketResult")
      fail(cat("it is no ListBucketResult but '", name.substr(0, 40), "'"));
    path_.emplace_back(name.substr(0, 64));
    text_.clear();
    if (path_.size() == 2 && name == "Contents") {
      object_ = {};
      size_seen_ = false;
    }
  }

  void add(std::string_view piece) {
    if (piece.size() > kMaxTextBytes - text_.size()) fail("a value is too long");
    text_.append(piece);
  }

  void end() {
    std::string name = std::move(path_.back());
    path_.pop_back();
    if (path_.size() == 2 && path_[1] == "Contents") {
      take_field(name);
    } else if (path_.size() == 1 && name == "Contents") {
      if (object_.key.empty() || !size_seen_) fail("an object lacks its key or size");
      if (objects_.size() >= kMaxObjects) fail(cat("it has more than ", kMaxObjects, " objects"));
      objects_.push_back(std::move(object_));
    } else if (path_.size() == 1 && name == "IsTruncated") {
      std::string_view value = trim(text_);
      if (value != "true" && value != "false") fail("IsTruncated is neither true nor false");
      truncated_ = value == "true";
    } else if (path_.size() == 1 && name == "NextContinuationToken") {
      token_ = trim(text_);
    } else if (path_.size() == 1 && name == "EncodingType") {
      url_encoded_ = trim(text_) == "url";
    }
    text_.clear();
  }

  void take_field(std::string_view name) {
    if (name == "Key") object_.key = text_;
    if (name == "LastModified") object_.modified = text_.substr(0, 40);
    if (name == "ETag") object_.etag = parse_etag(text_);
    if (name == "Size") {
      auto size = parse_decimal(trim(text_));
      if (!size || *size > uint64_t{1} << 60) fail("the size of an object is no number");
      object_.size = *size;
      size_seen_ = true;
    }
  }

  std::string_view where_;
  std::vector<S3Object>& objects_;
  size_t first_ = objects_.size();
  std::unique_ptr<XML_ParserStruct, decltype(&::XML_ParserFree)> parser_;
  std::exception_ptr error_;
  std::vector<std::string> path_;
  std::string text_, token_;
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
