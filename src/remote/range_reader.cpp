#include "remote/range_reader.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

std::string etag_of(const HttpResponse& response) {
  const std::string* value = find_header(response.headers, "etag");
  return value ? parse_etag(*value) : "";
}

// Without a value in it where there is none, or none that can be read.
ContentRange content_range_of(const HttpResponse& response) {
  const std::string* value = find_header(response.headers, "content-range");
  return value ? parse_content_range(*value).value_or(ContentRange()) : ContentRange();
}

// Why an answer is not what was asked for.
std::string range_flaw(const HttpResponse& response, uint64_t offset, uint64_t bytes,
                       uint64_t size) {
  if (response.status != 206) return "";
  const std::string* value = find_header(response.headers, "content-range");
  if (!value) return "an answer of a part without Content-Range";
  ContentRange range = content_range_of(response);
  if (range.first != offset || range.last != offset + bytes - 1) {
    return cat("bytes ", offset, "-", offset + bytes - 1, " were asked for, Content-Range is '",
               std::string_view(*value).substr(0, 80), "'");
  }
  if (range.total && *range.total != size) return "";  // another file: not to be asked for again
  if (response.body_bytes != bytes)
    return cat("the answer has ", response.body_bytes, " bytes instead of ", bytes);
  return "";
}

}  // namespace

HttpRequest request_for(const RemoteLocation& location) {
  HttpRequest request;
  request.url = location.url;
  request.authorization = location.authorization;
  if (location.sign_as) {
    request.sign_as = &*location.sign_as;
    // Of an empty body; libcurl signs it without adding it.
    request.headers.emplace_back(
        "x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    if (!location.sign_as->session_token.empty())
      request.headers.emplace_back("x-amz-security-token", location.sign_as->session_token);
  }
  return request;
}

void refuse_location(const RemoteLocation& location, const HttpRequest& request,
                     const HttpResponse& response) {
  std::string advice = location.denied_advice;
  if (const std::string* region = find_header(response.headers, "x-amz-bucket-region"))
    advice = cat("the bucket is in the region ", std::string_view(*region).substr(0, 40),
                 ": set AWS_REGION to it");
  const std::string* code = find_header(response.headers, "x-error-code");
  if (code && *code == "GatedRepo") {
    advice =
        "its owner gives access by request: accept the licence on its page, and set HF_TOKEN to a "
        "token of the account that did";
  }
  if (advice.empty()) {
    advice = response.status == 404 ? "there is no such file: check the address"
                                    : "check the address; a link that has expired must be made "
                                      "again";
  }
  refuse_response(request, response, advice);
}

void refuse_changed(const std::string& name, uint64_t size, const std::string& etag,
                    const std::string& now) {
  throw UserError(cat("'", name, "' has changed on its server: it had ", size, " bytes",
                      etag.empty() ? "" : " and ETag ", etag, now.empty() ? "" : ", now ETag ", now,
                      "; start again with the new one"));
}

RangeReader::RangeReader(RemoteLocation location, HttpSettings settings)
    : location_(std::move(location)), settings_(settings) {}

HttpRequest RangeReader::request(uint64_t offset, std::span<std::byte> out,
                                 const std::atomic<bool>* cancel) const {
  HttpRequest request = request_for(location_);
  request.range = {offset, out.size()};
  request.max_body = out.size();
  request.cancel = cancel;
  request.sink = [out](uint64_t at, std::string_view piece) {
    TESSERA_CHECK(at <= out.size() && piece.size() <= out.size() - at, "a part is bounded");
    std::memcpy(out.data() + at, piece.data(), piece.size());
  };
  request.flaw = [this, offset, bytes = out.size()](const HttpResponse& response) {
    return range_flaw(response, offset, bytes, location_.size);
  };
  return request;
}

void RangeReader::read(uint64_t offset, std::span<std::byte> out,
                       const std::atomic<bool>* cancel) const {
  TESSERA_CHECK(offset <= location_.size && out.size() <= location_.size - offset, location_.name);
  if (out.empty()) return;
  HttpRequest request = this->request(offset, out, cancel);
  HttpResponse response;
  HttpRequest shortcut = request;
  {
    std::lock_guard lock(mutex_);
    shortcut.url = direct_url_;
    shortcut.authorization = direct_authorization_;
  }
  if (!shortcut.url.empty()) {
    response = send_request(shortcut, settings_);
    if (response.status != 206) {
      std::lock_guard lock(mutex_);
      if (direct_url_ == shortcut.url) direct_url_.clear();
    }
  }
  if (response.status != 206) {
    response = send_request(request, settings_);
    if (!response.redirects.empty() && response.status == 206) {
      std::lock_guard lock(mutex_);
      direct_url_ = response.url;
      direct_authorization_ = response.trusted ? location_.authorization : "";
    }
  }
  if (response.status >= 200 && response.status < 300 && response.status != 206) {
    throw UserError(cat("cannot read a part of '", location_.name, "': the server answers status ",
                        response.status, " and not 206; fetch the whole file and give its path"));
  }
  std::optional<uint64_t> total = content_range_of(response).total;
  bool other_size =
      response.status == 416 || (response.status == 206 && total && *total != location_.size);
  std::string etag = etag_of(response);
  bool other_tag =
      response.status == 206 && !location_.etag.empty() && !etag.empty() && etag != location_.etag;
  if (other_size || other_tag) {
    refuse_changed(location_.name, location_.size, location_.etag, other_tag ? etag : "");
  }
  if (response.status != 206) refuse_location(location_, request, response);
}

namespace {

// nullopt for an answer of a status in `absent`.
std::optional<RemoteProbe> ask(RemoteLocation location, const HttpSettings& settings,
                               std::initializer_list<int> absent) {
  HttpRequest request = request_for(location);
  request.range = {0, 1};
  request.max_body = 1;
  request.flaw = [](const HttpResponse& response) -> std::string {
    ContentRange range = content_range_of(response);
    if (response.status == 206 && (range.first != 0u || range.last != 0u))
      return "an answer of a part without a fitting Content-Range";
    return "";
  };
  HttpResponse response = send_request(request, settings);
  RemoteProbe probe;
  ContentRange range = content_range_of(response);
  if (response.status == 206 && range.total) {
    probe.answers_parts = true;
    location.size = *range.total;
  } else if (response.status == 416 && range.total.value_or(0) == 0) {
    probe.answers_parts = true;  // an empty file has no first byte; S3 does not say its size
  } else if (response.status == 200 || response.status == 206) {
    if (const std::string* length = find_header(response.headers, "content-length");
        length && response.status == 200)
      probe.whole_size = parse_number<uint64_t>(*length);
  } else if (std::ranges::find(absent, response.status) != absent.end()) {
    return {};
  } else {
    refuse_location(location, request, response);
  }
  location.etag = etag_of(response);
  const std::string* modified = find_header(response.headers, "last-modified");
  // A link that is signed anew each time has the same tag; other addresses keep their query.
  std::string version;
  if (!location.etag.empty()) {
    version = cat(location.url.substr(0, location.url.find('?')), " ETag ", location.etag);
  } else if (modified) {
    version = cat(location.url, " Last-Modified ", *modified);
  } else {
    static const std::string process = random_id();
    version = cat(location.url, " once ", process);
    location.lasts = false;
  }
  location.identity = cat(version, " size ", location.size);
  probe.location = std::move(location);
  return probe;
}

}  // namespace

RemoteProbe probe_location(RemoteLocation location, const HttpSettings& settings) {
  return *ask(std::move(location), settings, {});
}

std::optional<RemoteProbe> find_location(RemoteLocation location, const HttpSettings& settings,
                                         bool optional) {
  if (optional) return ask(std::move(location), settings, {403, 404, 410});
  return ask(std::move(location), settings, {404, 410});
}

}  // namespace tessera
