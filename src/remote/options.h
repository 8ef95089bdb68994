#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "remote/http_client.h"

namespace tessera {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";
  std::string token;           // sent to the endpoint's origin alone; may be empty
  std::filesystem::path home;  // of Hugging Face's tools; what they have fetched is taken first
  bool offline = false;        // nothing but that
};

struct S3Settings {
  std::string access_key, secret_key, session_token;  // without keys requests are not signed
  std::string region = "us-east-1";
  std::string endpoint;  // empty: Amazon's; else addresses are ENDPOINT/BUCKET/KEY
  // What is written in one request; larger objects are sent in such parts, so many at once. S3
  // wants 5 MiB at least.
  uint64_t part_bytes = uint64_t{16} << 20;
  int parts_at_once = 4;
};

// How files are fetched, and where what was fetched is kept.
struct RemoteOptions {
  HttpSettings http;
  HubSettings hub;
  S3Settings s3;
  std::filesystem::path cache_directory;      // blocks and whole files
  uint64_t cache_bytes = uint64_t{64} << 30;  // blocks that are not used for longest go
  uint64_t block_bytes = uint64_t{8} << 20;   // a file is fetched in such parts
  int blocks_in_memory = 2;                   // of each open file
  bool read_ahead = true;                     // of a file that is read from block to block
  double lock_deadline = 600;    // seconds to wait for another process that fetches the same
  double progress_interval = 5;  // seconds between lines about what takes long
};

// With what other tools of the hub and of S3 are configured by as well: HF_ENDPOINT, HF_TOKEN (or
// the file `token` of HF_HOME), HF_HOME (but for an `hf_home` that is not empty), HF_HUB_OFFLINE;
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. The cache is XDG_CACHE_HOME/tessera or ~/.cache/tessera.
// UserError for a token with a character that no token has.
RemoteOptions remote_options_from_environment(const std::filesystem::path& hf_home = {});

}  // namespace tessera
