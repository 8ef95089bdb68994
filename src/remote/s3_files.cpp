#include "remote/s3_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "remote/s3_listing.h"
#include "remote/url.h"

namespace tessera {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr int kMaxPages = 5000;

// Of the bucket, without a slash at its end.
std::string bucket_url(const S3Name& name, const S3Settings& settings) {
  if (!settings.endpoint.empty()) return cat(settings.endpoint, "/", name.bucket);
  std::string host = cat("s3.", settings.region, ".amazonaws.com");
  // Certificates stand for one part before the host.
  return name.bucket.find('.') == std::string::npos ? cat("https://", name.bucket, ".", host)
                                                    : cat("https://", host, "/", name.bucket);
}

std::string denied_advice(const S3Settings& settings) {
  return settings.access_key.empty()
             ? "check the name; of a bucket that is not public only who has access may read: set "
               "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
             : "check the name, the region (AWS_REGION), that the keys in AWS_ACCESS_KEY_ID and "
               "AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, which expires) are valid and may "
               "read it, and the clock of this machine";
}

}  // namespace

S3Name parse_s3_name(std::string_view text) {
  auto fail = [&] {
    throw UserError(cat("'", text.substr(0, 200),
                        "' is not a name in S3; give s3://BUCKET/KEY of a "
                        "file, or s3://BUCKET/PREFIX/ of all files that begin so"));
  };
  if (!text.starts_with(kScheme)) fail();
  std::string_view rest = text.substr(kScheme.size());
  size_t slash = std::min(rest.find('/'), rest.size());
  S3Name name{std::string(rest.substr(0, slash)),
              std::string(rest.substr(std::min(slash + 1, rest.size())))};
  bool valid = name.bucket.size() >= 2 && name.bucket.size() <= 255 && name.bucket[0] != '.' &&
               std::ranges::all_of(name.bucket, [](char c) {
                 return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
               });
  if (!valid || name.key.size() > 1024) fail();
  return name;
}

RemoteLocation s3_location(const S3Name& name, const S3Settings& settings) {
  RemoteLocation location;
  location.name = cat(kScheme, name.bucket, "/", name.key);
  location.url = cat(bucket_url(name, settings), "/", percent_encode(name.key, true));
  if (!settings.access_key.empty()) {
    location.sign_as = AwsCredentials{settings.access_key, settings.secret_key,
                                      settings.session_token, settings.region};
  }
  location.denied_advice = denied_advice(settings);
  return location;
}

std::vector<S3Object> list_s3_objects(const S3Name& name, const RemoteOptions& options,
                                      size_t most) {
  RemoteLocation bucket = s3_location({name.bucket, ""}, options.s3);
  std::vector<S3Object> objects;
  std::string token;
  int pages = 0;
  do {
    check_interruption();
    if (++pages > kMaxPages)
      throw UserError(cat("'", bucket.name, "' does not end after ", kMaxPages,
                          " pages; check that the endpoint is one of S3"));
    HttpRequest request = request_for(bucket);
    // Sorted by name, as the signature wants it.
    request.url +=
        cat("?", token.empty() ? "" : cat("continuation-token=", percent_encode(token, false), "&"),
            "encoding-type=url&list-type=2&max-keys=", std::min<size_t>(most, 1000),
            "&prefix=", percent_encode(name.key, false));
    HttpResponse response = send_request(request, options.http);
    if (response.status != 200) refuse_location(bucket, request, response);
    token = parse_s3_listing(response.body, bucket.name, objects);
  } while (!token.empty() && objects.size() < most);
  if (objects.size() > most) objects.resize(most);
  for (const S3Object& object : objects) {
    if (!object.key.starts_with(name.key))
      throw UserError(cat("cannot use the listing of '", bucket.name, "': key '",
                          object.key.substr(0, 100), "' does not begin with '", name.key,
                          "'; check that the endpoint is one of S3"));
  }
  return objects;
}

std::vector<RemoteEntry> list_s3_files(const S3Name& name, const RemoteOptions& options) {
  std::vector<RemoteEntry> entries;
  for (const S3Object& object : list_s3_objects(name, options)) {
    if (object.key.ends_with('/')) continue;
    RemoteEntry entry;
    entry.path = object.key.substr(name.key.size());
    entry.url = cat(kScheme, name.bucket, "/", object.key);
    entry.size = object.size;
    entry.etag = object.etag;
    entries.push_back(std::move(entry));
  }
  if (entries.empty())
    throw UserError(
        cat("there is no file under '", kScheme, name.bucket, "/", name.key, "'; check the name"));
  std::ranges::sort(entries, {}, &RemoteEntry::path);
  return entries;
}

}  // namespace tessera
