#pragma once
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "remote/options.h"
#include "remote/s3_listing.h"
#include "remote/transfer_progress.h"

namespace tessera {

// Objects that are written, listed, read and removed. Names are s3://BUCKET/KEY. All functions
// repeat what fails as RemoteOptions::http says; UserError, with the address and what to do, where
// that is of no use. Interrupted as send_request().
class S3Store {
 public:
  explicit S3Store(RemoteOptions options) : options_(std::move(options)) {}
  const RemoteOptions& options() const { return options_; }

  // The objects whose names begin so, in the order of their keys; perhaps none, at most `most`.
  std::vector<S3Object> list(std::string_view prefix, size_t most = SIZE_MAX) const;
  // A whole object of at most `max_bytes`; nullopt where there is none.
  struct Content {
    std::string text, etag;
  };
  std::optional<Content> read(const std::string& name, uint64_t max_bytes) const;
  // To read parts of: an object of a known size, fetched in blocks that stay in memory only.
  std::unique_ptr<ByteSource> open(const std::string& name, uint64_t bytes) const;

  // What must hold for an object to be written: nothing, that there is none of its name, or that it
  // still has this tag. Servers that know no conditions do not look.
  struct Condition {
    bool is_new = false;
    std::string etag = {};
  };
  // In one request. False where the condition does not hold.
  bool write(const std::string& name, std::string_view content, const Condition& condition) const;
  void write(const std::string& name, std::string_view content) const { write(name, content, {}); }
  void remove(const std::string& name) const;  // also where there is none
  // Ends multipart uploads to names that begin so, whoever began them, or to those of which
  // `wanted` says so by what follows the prefix; their parts go.
  void abort_uploads(std::string_view prefix,
                     const std::function<bool(std::string_view rest)>& wanted = {}) const;

 private:
  friend class S3Upload;
  struct Call {
    std::string method, name, query;  // sorted, as the signature wants it
    std::string_view body = {};
    HttpHeaders headers = {};
    std::vector<int> good = {200};  // statuses that are returned; others are errors
    std::function<std::string(const HttpResponse&)> flaw = {};
    uint64_t max_body = uint64_t{32} << 20;
  };
  HttpResponse send(const Call& call) const;
  void abort_upload(const std::string& name, std::string_view id) const;

  RemoteOptions options_;
};

// An object that is written in order and is there with commit(); without it nothing is. A large one
// goes in parts of S3Settings::part_bytes, several at once, and what fails of it is sent again by
// itself; lines of the log say how far it is. `bytes`: at most so many will follow. Requests to end
// the process do not end it.
class S3Upload {
 public:
  S3Upload(const S3Store& store, std::string name, uint64_t bytes);
  ~S3Upload();
  S3Upload(const S3Upload&) = delete;
  S3Upload& operator=(const S3Upload&) = delete;
  void write(const void* data, size_t size);
  void commit();

 private:
  void send_part();
  void take_oldest();

  const S3Store& store_;
  std::string name_, id_, part_;
  size_t part_bytes_;
  uint64_t written_ = 0;
  std::vector<std::string> etags_;  // of parts that are there, by number
  std::deque<std::future<std::string>> sending_;
  TransferProgress progress_;
};

}  // namespace tessera
