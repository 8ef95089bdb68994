#include "remote/s3_store.h"

#include <algorithm>
#include <utility>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "remote/range_reader.h"
#include "remote/remote_file.h"
#include "remote/s3_answer.h"
#include "remote/s3_files.h"
#include "remote/url.h"

namespace tessera {
namespace {

constexpr uint64_t kMaxParts = 9000;  // S3 takes 10,000
constexpr uint64_t kReadAtOnce = uint64_t{4} << 20;
constexpr int kBlocksInMemory = 16;  // of an open object, for threads that read at several places
constexpr int kMaxRounds = 100;

std::string etag_of(const HttpResponse& response) {
  const std::string* value = find_header(response.headers, "etag");
  return value ? *value : "";
}

[[noreturn]] void refuse_missing(const std::string& bucket, std::string_view code) {
  throw UserError(cat("cannot list uploads to '", bucket, "': status 404 (", code,
                      "); check the name of the bucket"));
}

}  // namespace

HttpResponse S3Store::send(const Call& call) const {
  const RemoteLocation location = s3_location(parse_s3_name(call.name), options_.s3);
  HttpRequest request = request_for(location);
  request.method = call.method;
  request.body = call.body;
  request.flaw = call.flaw;
  request.max_body = call.max_body;
  request.url += call.query;
  for (auto& [name, value] : request.headers) {
    if (name == "x-amz-content-sha256") value = hex(sha256(call.body));
  }
  request.headers.insert(request.headers.end(), call.headers.begin(), call.headers.end());
  HttpResponse response = send_request(request, options_.http);
  if (std::ranges::count(call.good, response.status) == 0)
    refuse_location(location, request, response);
  return response;
}

std::vector<S3Object> S3Store::list(std::string_view prefix, size_t most) const {
  return list_s3_objects(parse_s3_name(prefix), options_, most);
}

std::optional<S3Store::Content> S3Store::read(const std::string& name, uint64_t max_bytes) const {
  HttpResponse response =
      send({.method = "", .name = name, .query = "", .good = {200, 404}, .max_body = max_bytes});
  if (response.status == 404) return {};
  return Content{std::move(response.body), etag_of(response)};
}

std::unique_ptr<ByteSource> S3Store::open(const std::string& name, uint64_t bytes) const {
  RemoteLocation location = s3_location(parse_s3_name(name), options_.s3);
  location.size = bytes;
  RemoteOptions reading = options_;
  reading.block_bytes = kReadAtOnce;
  reading.blocks_in_memory = kBlocksInMemory;
  return std::make_unique<RemoteFile>(std::move(location), reading, nullptr);
}

bool S3Store::write(const std::string& name, std::string_view content,
                    const Condition& condition) const {
  Call call{.method = "PUT", .name = name, .query = "", .body = content};
  if (condition.is_new) call.headers.emplace_back("If-None-Match", "*");
  if (!condition.etag.empty()) call.headers.emplace_back("If-Match", condition.etag);
  if (!call.headers.empty()) call.good = {200, 409, 412};
  return send(call).status == 200;
}

void S3Store::remove(const std::string& name) const {
  send({.method = "DELETE", .name = name, .query = "", .good = {200, 204, 404}});
}

void S3Store::abort_upload(const std::string& name, std::string_view id) const {
  send({.method = "DELETE",
        .name = name,
        .query = cat("?uploadId=", percent_encode(id, false)),
        .good = {200, 204, 404}});
}

void S3Store::abort_uploads(std::string_view prefix,
                            const std::function<bool(std::string_view rest)>& wanted) const {
  const S3Name name = parse_s3_name(prefix);
  const std::string bucket = cat("s3://", name.bucket, "/");
  std::string key_marker, id_marker;  // where the page before has ended
  for (int round = 0; round < kMaxRounds; ++round) {
    std::string query = "?";
    if (!key_marker.empty()) query += cat("key-marker=", percent_encode(key_marker, false), "&");
    query += cat("max-uploads=1000&prefix=", percent_encode(name.key, false));
    if (!id_marker.empty()) query += cat("&upload-id-marker=", percent_encode(id_marker, false));
    const HttpResponse response =
        send({.method = "", .name = bucket, .query = query + "&uploads=", .good = {200, 404}});
    if (response.status == 404) {  // as rclone says that there is none
      const S3Answer error = parse_s3_answer(response.body, "Error", bucket);
      if (find_text(error, "Code") == "NoSuchUpload") return;
      refuse_missing(bucket, find_text(error, "Code"));
    }
    const S3Answer answer = parse_s3_answer(response.body, "ListMultipartUploadsResult", bucket);
    std::string key, id;  // of an upload, in either order
    for (const auto& [path, text] : answer) {
      if (path == "Upload/Key") key = text;
      if (path == "Upload/UploadId") id = text;
      if (key.empty() || id.empty()) continue;
      const std::string ended = std::exchange(key, {}), its_id = std::exchange(id, {});
      if (!ended.starts_with(name.key)) continue;
      if (!wanted || wanted(std::string_view(ended).substr(name.key.size())))
        abort_upload(bucket + ended, its_id);
    }
    if (find_text(answer, "IsTruncated") != "true") return;
    key_marker = find_text(answer, "NextKeyMarker");
    id_marker = find_text(answer, "NextUploadIdMarker");
    if (key_marker.empty()) return;
  }
}

S3Upload::S3Upload(const S3Store& store, std::string name, uint64_t bytes)
    : store_(store),
      name_(std::move(name)),
      progress_("Uploading", bytes, store.options_.progress_interval) {
  const uint64_t fewest = (bytes + kMaxParts - 1) / kMaxParts;
  part_bytes_ = static_cast<size_t>(std::max(store.options_.s3.part_bytes, fewest));
}

S3Upload::~S3Upload() {
  for (auto& sending : sending_) sending.wait();
  if (id_.empty()) return;
  try {
    InterruptedBy nothing(kNeverRequested);
    store_.abort_upload(name_, id_);
  } catch (const std::exception&) {
    // The next holder of the lock does so.
  }
}

void S3Upload::write(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  written_ += size;
  while (size > 0) {
    if (part_.size() == part_bytes_) send_part();
    if (part_.capacity() == 0) part_.reserve(part_bytes_);
    const size_t count = std::min(size, part_bytes_ - part_.size());
    part_.append(next, count);
    next += count;
    size -= count;
  }
}

void S3Upload::send_part() {
  InterruptedBy nothing(kNeverRequested);
  if (id_.empty()) {
    // An answer that is lost leaves an upload without parts, which the next lock removes.
    const std::string body =
        store_.send({.method = "POST", .name = name_, .query = "?uploads="}).body;
    id_ = find_text(parse_s3_answer(body, "InitiateMultipartUploadResult", name_), "UploadId");
    if (id_.empty())
      throw UserError(cat("cannot write '", name_,
                          "': the server names no UploadId; check that "
                          "the endpoint is one of S3"));
  }
  while (std::ssize(sending_) >= std::max(1, store_.options_.s3.parts_at_once)) take_oldest();
  const size_t number = etags_.size() + sending_.size() + 1;
  auto send = [this, number, part = std::exchange(part_, {})] {
    InterruptedBy own(kNeverRequested);
    const S3Store::Call call{
        .method = "PUT",
        .name = name_,
        .query = cat("?partNumber=", number, "&uploadId=", percent_encode(id_, false)),
        .body = part,
        .flaw = [](const HttpResponse& response) {
          return etag_of(response).empty() ? "no ETag of the part" : "";
        }};
    return etag_of(store_.send(call));
  };
  sending_.push_back(std::async(std::launch::async, std::move(send)));
}

void S3Upload::take_oldest() {
  std::future<std::string> oldest = std::move(sending_.front());
  sending_.pop_front();
  etags_.push_back(oldest.get());
  const uint64_t end = std::min<uint64_t>(etags_.size() * part_bytes_, written_);
  progress_.add(name_, end - (etags_.size() - 1) * part_bytes_);
}

void S3Upload::commit() {
  InterruptedBy nothing(kNeverRequested);
  if (id_.empty()) return store_.write(name_, part_);
  if (!part_.empty()) send_part();
  while (!sending_.empty()) take_oldest();
  std::string body = "<CompleteMultipartUpload>";
  for (size_t i = 0; i < etags_.size(); ++i)
    body += cat("<Part><PartNumber>", i + 1, "</PartNumber><ETag>", etags_[i], "</ETag></Part>");
  body += "</CompleteMultipartUpload>";
  // It may say that it goes well, and at its end that it did not.
  const HttpResponse response =
      store_.send({.method = "POST",
                   .name = name_,
                   .query = cat("?uploadId=", percent_encode(id_, false)),
                   .body = body,
                   .good = {200, 404},
                   .flaw = [](const HttpResponse& answer) {
                     return answer.body.find("<Error>") != std::string::npos
                                ? cat("it could not be put together", server_reason(answer))
                                : "";
                   }});
  if (response.status == 404) {
    // An answer may have been lost: then there is no such upload any more, but the object.
    const std::vector<S3Object> objects = store_.list(name_, 1);
    const std::string key = parse_s3_name(name_).key;
    auto found = std::ranges::find(objects, key, &S3Object::key);
    if (found == objects.end() || found->size != written_)
      throw UserError(cat("cannot write '", name_, "': its upload was ended by another process"));
  }
  id_.clear();
}

}  // namespace tessera
