#include "remote/s3_store.h"

#include <gtest/gtest.h>

#include "base/interruption.h"
#include "base/log.h"
#include "remote/s3_answer.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

TEST(S3Answer, IsRead) {
  const S3Answer answer = parse_s3_answer(
      "<R><Truncated>true</Truncated><Upload><Key>a &amp; b</Key><UploadId> 1 </UploadId></Upload>"
      "<Upload><Key>c</Key></Upload><Empty/></R>",
      "R", "s3://b/");
  EXPECT_EQ(answer, (S3Answer{{"Truncated", "true"},
                              {"Upload/Key", "a & b"},
                              {"Upload/UploadId", "1"},
                              {"Upload/Key", "c"},
                              {"Empty", ""}}));
  EXPECT_EQ(find_text(answer, "Upload/Key"), "a & b");
  EXPECT_EQ(find_text(answer, "Key"), "");
  EXPECT_EQ(parse_s3_answer("<R><A>1</A></R>", "RResult", "s3://b/"), (S3Answer{{"A", "1"}}));
}

TEST(S3Answer, WhatItRefuses) {
  auto refuse = [](std::string_view xml, std::string_view why) {
    std::string message = user_error([&] { parse_s3_answer(xml, "R", "s3://b/"); });
    expect_contains(message, "cannot use the answer of 's3://b/'");
    expect_contains(message, why);
  };
  const std::string good = "<R><A>1</A><B><C>2</C></B></R>";
  for (size_t size = 0; size < good.size(); ++size) refuse(good.substr(0, size), "");
  refuse("<Error/>", "it is no R but 'Error'");
  refuse("<!DOCTYPE a [<!ENTITY x \"y\">]><R/>", "document type");
  refuse(cat("<R>", std::string(1000, ' '), "<a><a><a><a><a><a><a><a><a>"), "nested too deeply");
  refuse(cat("<R><A>", std::string(10'000, 'x')), "too long");
}

class S3Writing : public testing::Test {
 protected:
  S3Store store() const {
    RemoteOptions options = server_.options();
    options.s3.access_key = "AKIDEXAMPLE";
    options.s3.secret_key = "secret/key+example";
    options.s3.session_token = "session/token==";
    options.s3.part_bytes = 10'000;
    options.http.attempts = 8;
    return S3Store(options);
  }
  void upload(const S3Store& store, const std::string& name, const std::string& content) const {
    S3Upload upload(store, name, content.size());
    for (size_t at = 0; at < content.size(); at += 3'333)
      upload.write(content.data() + at, std::min<size_t>(3'333, content.size() - at));
    upload.commit();
  }
  LocalServer server_;
};

TEST_F(S3Writing, ObjectsComeAndGo) {
  const S3Store store = this->store();
  const std::string name = "s3://bucket/a b/c+d%.txt";
  EXPECT_FALSE(store.read(name, 100));
  store.write(name, "first");
  EXPECT_EQ(store.read(name, 100)->text, "first");
  store.write(name, "");
  EXPECT_EQ(store.read(name, 100)->text, "");
  store.write(name, "second");
  store.write("s3://bucket/a b/z", "other");
  std::vector<S3Object> objects = store.list("s3://bucket/a b/c");
  ASSERT_EQ(objects.size(), 1u);
  EXPECT_EQ(objects[0].key, "a b/c+d%.txt");
  EXPECT_EQ(objects[0].size, 6u);
  EXPECT_EQ(objects[0].modified.size(), 24u);
  EXPECT_EQ(store.list("s3://bucket/a b/", 1).size(), 1u);
  expect_contains(user_error([&] { store.read(name, 3); }), "longer than 3 bytes");
  store.remove(name);
  store.remove(name);
  EXPECT_FALSE(store.read(name, 100));
  EXPECT_TRUE(store.list("s3://bucket/a b/c").empty());
}

TEST_F(S3Writing, Conditions) {
  const S3Store store = this->store();
  const std::string name = "s3://bucket/lock";
  EXPECT_TRUE(store.write(name, "one", {.is_new = true}));
  EXPECT_FALSE(store.write(name, "two", {.is_new = true}));
  const std::string tag = store.read(name, 100)->etag;
  EXPECT_TRUE(store.write(name, "three", {.etag = tag}));
  EXPECT_FALSE(store.write(name, "four", {.etag = tag}));
  EXPECT_EQ(store.read(name, 100)->text, "three");
}

TEST_F(S3Writing, PartsOfAnySize) {
  const S3Store store = this->store();
  for (size_t size : {0, 1, 9'999, 10'000, 10'001, 20'000, 123'456}) {
    const std::string name = cat("s3://bucket/x/", size), content = test_content(size);
    upload(store, name, content);
    EXPECT_EQ(read_all(*store.open(name, size)), content);
    EXPECT_EQ(store.read(name, size)->text, content);
  }
  // One request each up to the size of a part.
  EXPECT_EQ(server_.requests("POST /s3/bucket/x/10000").size(), 0u);
  EXPECT_EQ(server_.requests("PUT /s3/bucket/x/10001").size(), 2u);
  EXPECT_EQ(server_.requests("PUT /s3/bucket/x/123456").size(), 13u);
}

TEST_F(S3Writing, SmallReadsAreJoined) {
  const S3Store store = this->store();
  const std::string content = test_content(50'000);
  upload(store, "s3://bucket/x", content);
  const auto source = store.open("s3://bucket/x", content.size());
  for (size_t at : {100, 0, 40'000, 49'999}) {
    std::byte byte{};
    source->read(at, {&byte, 1});
    EXPECT_EQ(static_cast<char>(byte), content[at]);
  }
  EXPECT_EQ(server_.requests("GET /s3/bucket/x ").size(), 1u);
  std::byte byte{};
  expect_contains(user_error([&] { source->read(50'000, {&byte, 1}); }), "it has 50000 bytes");
  expect_contains(user_error([&] { read_all(*store.open("s3://bucket/x", 50'001)); }),
                  "/s3/bucket/x'");
  expect_contains(user_error([&] { read_all(*store.open("s3://bucket/none", 10)); }), "404");
}

TEST_F(S3Writing, OnABadDayEachPartIsSentAgain) {
  server_.write("s3.json", R"({"trouble": 4})");
  const S3Store store = this->store();
  const std::string content = test_content(200'000);
  upload(store, "s3://bucket/x", content);
  EXPECT_EQ(read_all(*store.open("s3://bucket/x", content.size())), content);
  store.write("s3://bucket/y", "y");
  store.remove("s3://bucket/y");
  EXPECT_EQ(server_.requests("status=200").size() + server_.requests("status=20").size() > 20,
            true);
  for (const char* kind : {"status=503", "status=drop", "status=429", "status=cut"})
    EXPECT_FALSE(server_.requests(kind).empty()) << kind;
  // Never the whole: 20 parts and what was lost on the way.
  EXPECT_LT(server_.requests("PUT /s3/bucket/x?").size(), 36u);
  EXPECT_EQ(server_.requests("?uploads=").size(),
            server_.requests("POST /s3/bucket/x?uploads=").size());
}

TEST_F(S3Writing, WhatTakesLongTellsHowFarItIs) {
  RemoteOptions options = store().options();
  options.progress_interval = 0;
  std::vector<std::string> lines;
  set_log_listener([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  upload(S3Store(options), "s3://bucket/x", test_content(20'480));
  set_log_listener({});
  ASSERT_EQ(lines.size(), 3u);
  expect_contains(lines[0], "Uploading 's3://bucket/x': 9.77 KiB at ");
  expect_contains(lines[0], "/s of 20.0 KiB, left ");
  expect_contains(lines[2], "Uploading 's3://bucket/x': 20.0 KiB at ");
}

TEST_F(S3Writing, WhatIsNotCommittedIsNotThere) {
  const S3Store store = this->store();
  const std::string content = test_content(50'000);
  {
    S3Upload upload(store, "s3://bucket/x", content.size());
    upload.write(content.data(), content.size());
  }
  EXPECT_TRUE(store.list("s3://bucket/x").empty());
  EXPECT_EQ(server_.requests("DELETE /s3/bucket/x?uploadId=").size(), 1u);
  server_.write("s3.json", R"({"full": 1000})");
  expect_contains(user_error([&] { upload(store, "s3://bucket/x", content); }),
                  "/s3/bucket/x': status 403 (QuotaExceeded: see the code)");
  EXPECT_TRUE(store.list("s3://bucket/x").empty());
  EXPECT_EQ(server_.requests("DELETE /s3/bucket/x?uploadId=").size(), 2u);
}

TEST_F(S3Writing, UploadsThatNobodyEndsAreAborted) {
  const S3Store store = this->store();
  const std::string content = test_content(50'000);
  auto left = std::make_unique<S3Upload>(store, "s3://bucket/ckpt/a", content.size());
  left->write(content.data(), content.size());
  S3Upload other(store, "s3://bucket/other/a", content.size());
  other.write(content.data(), content.size());
  store.abort_uploads("s3://bucket/ckpt/");
  expect_contains(user_error([&] { left->commit(); }), "NoSuchUpload");
  other.commit();
  EXPECT_EQ(store.list("s3://bucket/other/a").size(), 1u);
  EXPECT_TRUE(store.list("s3://bucket/ckpt/a").empty());
  left.reset();
}

TEST_F(S3Writing, NoUploadsMayBeAnError) {
  server_.write("s3.json", R"({"none": "NoSuchUpload"})");
  store().abort_uploads("s3://bucket/ckpt/");
  server_.write("s3.json", R"({"none": "NoSuchBucket"})");
  expect_contains(user_error([&] { store().abort_uploads("s3://bucket/ckpt/"); }),
                  "cannot list uploads to 's3://bucket/': status 404 (NoSuchBucket)");
}

TEST_F(S3Writing, ARequestToEndLetsAnUploadEnd) {
  const S3Store store = this->store();
  const std::string content = test_content(50'000);
  request_interruption();
  upload(store, "s3://bucket/x", content);
  EXPECT_THROW(store.read("s3://bucket/x", 100'000), Interrupted);
  clear_interruption();
  EXPECT_EQ(store.read("s3://bucket/x", 100'000)->text, content);
}

TEST_F(S3Writing, WrongKeysAreSaid) {
  RemoteOptions options = store().options();
  options.s3.secret_key = "wrong";
  const std::string message = user_error([&] { S3Store(options).write("s3://bucket/x", "text"); });
  expect_contains(message, "cannot write '");
  expect_contains(message, "SignatureDoesNotMatch");
  expect_contains(message, "AWS_SECRET_ACCESS_KEY");
  expect_lacks(message, "wrong");
}

}  // namespace
}  // namespace tessera
