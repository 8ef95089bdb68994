#include "remote/options.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Empty counts as not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::string(trim(value)) : "";
}

std::string first_of(const char* a, const char* b) {
  std::string value = variable(a);
  return value.empty() ? variable(b) : value;
}

bool is_true(std::string_view text) {
  std::string word = lower(text);
  return word == "1" || word == "on" || word == "yes" || word == "true";
}

std::string without_slashes_at_end(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

void check_secret(const std::string& secret, const char* name) {
  bool printable = std::ranges::all_of(secret, [](char c) { return c > 0x20 && c < 0x7f; });
  if (!printable || secret.size() > 8192)
    throw UserError(cat(name,
                        " holds what is no token: a space, a control character or too much; "
                        "set it to the token alone"));
}

}  // namespace

RemoteOptions remote_options_from_environment(const fs::path& hf_home) {
  RemoteOptions options;
  fs::path user_cache = variable("XDG_CACHE_HOME");
  if (user_cache.empty()) user_cache = fs::path(variable("HOME")) / ".cache";
  options.cache_directory = user_cache / "tessera";

  HubSettings& hub = options.hub;
  hub.home = hf_home.empty() ? fs::path(variable("HF_HOME")) : hf_home;
  if (hub.home.empty()) hub.home = user_cache / "huggingface";
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    hub.endpoint = without_slashes_at_end(endpoint);
  hub.offline = is_true(variable("HF_HUB_OFFLINE"));
  hub.token = variable("HF_TOKEN");
  std::error_code error;
  fs::path token_file = hub.home / "token";
  if (hub.token.empty() && fs::is_regular_file(token_file, error) &&
      fs::file_size(token_file, error) < 8192)
    hub.token = trim(read_file(token_file));
  check_secret(hub.token, "HF_TOKEN");

  S3Settings& s3 = options.s3;
  s3.access_key = variable("AWS_ACCESS_KEY_ID");
  s3.secret_key = variable("AWS_SECRET_ACCESS_KEY");
  s3.session_token = variable("AWS_SESSION_TOKEN");
  check_secret(s3.access_key, "AWS_ACCESS_KEY_ID");
  check_secret(s3.secret_key, "AWS_SECRET_ACCESS_KEY");
  check_secret(s3.session_token, "AWS_SESSION_TOKEN");
  if (std::string region = first_of("AWS_REGION", "AWS_DEFAULT_REGION"); !region.empty())
    s3.region = region;
  s3.endpoint = without_slashes_at_end(first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"));
  return options;
}

}  // namespace tessera
