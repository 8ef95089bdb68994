#include <gtest/gtest.h>

#include "remote/s3_files.h"
#include "remote/s3_listing.h"
#include "remote/source.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

TEST(S3Name, Parts) {
  S3Name name = parse_s3_name("s3://my-bucket/a/b c%20?.txt");
  EXPECT_EQ(name.bucket, "my-bucket");
  EXPECT_EQ(name.key, "a/b c%20?.txt");
  EXPECT_EQ(parse_s3_name("s3://bucket").key, "");
  EXPECT_EQ(parse_s3_name("s3://bucket/").key, "");
  for (const char* bad :
       {"s3://", "s3:///key", "s3://a b/key", "s3://x@y/key", "s3://../key", "http://bucket/key"})
    expect_contains(user_error([&] { parse_s3_name(bad); }), "is not a name in S3");
}

TEST(S3Name, Addresses) {
  S3Settings settings;
  settings.region = "eu-west-1";
  EXPECT_EQ(s3_location({"b", "a/c d+e"}, settings).url,
            "https://b.s3.eu-west-1.amazonaws.com/a/c%20d%2Be");
  EXPECT_EQ(s3_location({"b.c", "k"}, settings).url, "https://s3.eu-west-1.amazonaws.com/b.c/k");
  settings.endpoint = "http://127.0.0.1:9000";
  EXPECT_EQ(s3_location({"b", "k"}, settings).url, "http://127.0.0.1:9000/b/k");
}

constexpr const char* kListing =
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Prefix>p</Prefix>"
    "<Contents><Key>a &amp; b</Key><Size>12</Size><ETag>&quot;e&quot;</ETag>"
    "<Owner><ID>7</ID></Owner></Contents>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>t/+=</NextContinuationToken>"
    "</ListBucketResult>";

TEST(S3Listing, IsRead) {
  std::vector<S3Object> objects;
  EXPECT_EQ(parse_s3_listing(kListing, "s3://b/", objects), "t/+=");
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0].key, "a & b");
  EXPECT_EQ(objects[0].size, 12u);
  EXPECT_EQ(objects[0].etag, "e");
  EXPECT_EQ(
      parse_s3_listing("<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a+%2B"
                       "</Key><Size>0</Size></Contents><IsTruncated>false</IsTruncated>"
                       "</ListBucketResult>",
                       "s3://b/", objects),
      "");
  EXPECT_EQ(objects[1].key, "a +");
}

TEST(S3Listing, WhatItRefuses) {
  auto refuse = [](std::string_view xml, std::string_view why) {
    std::vector<S3Object> objects;
    std::string message = user_error([&] { parse_s3_listing(xml, "s3://b/", objects); });
    expect_contains(message, "cannot use the listing of 's3://b/'");
    expect_contains(message, why);
  };
  std::string good = kListing;
  for (size_t size = 0; size < good.size(); ++size) refuse(good.substr(0, size), "");
  refuse("<Error/>", "no ListBucketResult");
  refuse("<ListBucketResult/>", "whether it is complete");
  refuse("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "no token");
  refuse("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>", "lacks its key");
  refuse("<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
         "no number");
  refuse("<!DOCTYPE a [<!ENTITY x \"y\">]><ListBucketResult/>", "document type");
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += i == 0 ? "<ListBucketResult>" : "<a>";
  refuse(deep, "nested too deeply");
  refuse(cat("<ListBucketResult><Prefix>", std::string(10'000, 'x')), "too long");
}

class S3 : public testing::Test {
 protected:
  S3() {
    options_.s3.access_key = "AKIDEXAMPLE";
    options_.s3.secret_key = "secret/key+example";
  }
  LocalServer server_;
  RemoteOptions options_ = server_.options();
};

TEST_F(S3, ReadsSignedAndUnsigned) {
  std::string content = test_content(3210);
  for (const char* key : {"plain.bin", "dir/a b+c&d=e,f;g.bin", "dir/%41\xc3\xa4~.bin"}) {
    server_.write(cat("s3/bucket/", key), content);
    EXPECT_EQ(read_all(*open_source(cat("s3://bucket/", key), options_)), content) << key;
  }
  EXPECT_TRUE(server_.requests("status=403").empty());
  server_.write("s3/public/plain.bin", content);
  options_.s3.access_key.clear();
  EXPECT_EQ(read_all(*open_source("s3://public/plain.bin", options_)), content);
  std::string message = user_error([&] { open_source("s3://bucket/plain.bin", options_); });
  expect_contains(message, "status 403 (AccessDenied");
  expect_contains(message, "set AWS_ACCESS_KEY_ID");
}

TEST_F(S3, SignsTheTokenOfASession) {
  server_.write("s3/bucket/a", "content");
  options_.s3.session_token = "session/token==";
  EXPECT_EQ(read_all(*open_source("s3://bucket/a", options_)), "content");
  options_.s3.session_token = "expired";
  expect_contains(user_error([&] { open_source("s3://bucket/a", options_); }), "InvalidToken");
}

TEST_F(S3, WrongKeysAreNamed) {
  server_.write("s3/bucket/a", "content");
  options_.s3.secret_key = "wrong";
  std::string message = user_error([&] { open_source("s3://bucket/a", options_); });
  expect_contains(message, "status 403 (SignatureDoesNotMatch");
  expect_contains(message, "AWS_SECRET_ACCESS_KEY");
  expect_lacks(message, "wrong");
  options_.s3.access_key = "AKIDOTHER";
  expect_contains(user_error([&] { open_source("s3://bucket/a", options_); }),
                  "InvalidAccessKeyId");
}

TEST_F(S3, AnotherRegionIsNamed) {
  for (bool is_signed : {true, false}) {
    if (!is_signed) options_.s3.access_key.clear();
    for (const char* name : {"s3://elsewhere/a", "s3://elsewhere/a/"}) {
      const std::string message = user_error([&] { list_files(name, options_); });
      expect_contains(message, "status 301; the bucket is in the region eu-west-3: set AWS_REGION");
    }
  }
}

TEST_F(S3, ListsByPages) {
  std::vector<std::string> names{"a.txt", "b c+d.txt", "sub/\xc3\xa4.txt", "sub/x&y.txt", "z.txt"};
  for (const std::string& name : names)
    server_.write(cat("s3/bucket/pre fix/", name), cat("content of ", name));
  server_.write("s3/bucket/other.txt", "");
  auto entries = list_files("s3://bucket/pre fix/", options_);
  ASSERT_EQ(entries.size(), names.size());
  std::sort(names.begin(), names.end());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(entries[i].path, names[i]);
    EXPECT_EQ(read_all(*open_source(entries[i], options_)), cat("content of ", names[i]));
    EXPECT_EQ(entries[i].etag.size(), 32u);
  }
  EXPECT_EQ(list_files("s3://bucket", options_).size(), names.size() + 1);
  EXPECT_EQ(list_files("s3://bucket/other.txt", options_)[0].size, 0u);
  expect_contains(user_error([&] { list_files("s3://bucket/none/", options_); }),
                  "there is no file under 's3://bucket/none/'");
  expect_contains(user_error([&] { list_files("s3://bucket/none", options_); }), "NoSuchKey");
  // What was listed and is another one now.
  server_.write("s3/bucket/pre fix/a.txt", "content of A.txt");
  options_.cache_directory += "x";
  expect_contains(user_error([&] { read_all(*open_source(entries[0], options_)); }),
                  "has changed on its server");
}

}  // namespace
}  // namespace tessera
