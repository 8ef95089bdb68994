#include "remote/remote_file.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/clock.h"
#include "remote/source.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

class RemoteFiles : public testing::Test {
 protected:
  RemoteFiles() { options_.hub.endpoint = "http://127.0.0.1:1"; }
  std::unique_ptr<ByteSource> open(const std::string& path) {
    return open_source(server_.url(path), options_);
  }
  // The message of a read of a file whose first request (for its size) is answered well.
  std::string error_of(const std::string& plan) {
    auto source = open(cat("/files/a.bin?plan=ok,", plan, "&id=", plan));
    return user_error([&] { read_all(*source); });
  }

  LocalServer server_;
  RemoteOptions options_ = server_.options();
  std::string content_ = test_content(10'500);
  std::filesystem::path file_ = server_.write("files/a.bin", content_);
};

TEST_F(RemoteFiles, AnyPartIsRead) {
  auto source = open("/files/a.bin");
  EXPECT_EQ(source->size(), content_.size());
  EXPECT_EQ(source->name(), server_.url("/files/a.bin"));
  std::minstd_rand random(1);
  for (int i = 0; i < 300; ++i) {
    size_t offset = random() % (content_.size() + 1);
    size_t count = random() % std::min<size_t>(content_.size() - offset + 1, 3000);
    std::string part(count, '\0');
    source->read(offset, std::as_writable_bytes(std::span(part)));
    ASSERT_EQ(part, content_.substr(offset, count)) << offset << " " << count;
  }
  // 11 blocks, each fetched once.
  EXPECT_EQ(server_.requests("GET /files/a.bin").size(), 12u);
  std::string beyond(2, '\0');
  expect_contains(user_error([&] {
                    source->read(content_.size() - 1, std::as_writable_bytes(std::span(beyond)));
                  }),
                  "it has 10500 bytes, and 2 at 10499 are asked for");
}

TEST_F(RemoteFiles, ManyThreadsReadAtOnce) {
  auto source = open("/files/a.bin");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        size_t offset = static_cast<size_t>(t * 2500 + i * 37);
        std::string part(1200, '\0');
        if (offset + part.size() > content_.size()) continue;
        source->read(offset, std::as_writable_bytes(std::span(part)));
        right += part == content_.substr(offset, part.size());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GE(right, 140);
  EXPECT_LE(server_.requests("GET").size(), 12u);
}

TEST_F(RemoteFiles, SizesAtTheEdgesOfBlocks) {
  for (size_t size : {0, 1, 999, 1000, 1001, 2000}) {
    std::string content = test_content(size);
    server_.write(cat("files/", size), content);
    auto source = open(cat("/files/", size));
    EXPECT_EQ(source->size(), size);
    EXPECT_EQ(read_all(*source), content);
  }
}

TEST_F(RemoteFiles, DamagedAnswersAreAskedForAgain) {
  for (const char* flaw : {"truncate", "short", "long", "shifted", "norange", "503", "drop"}) {
    options_.cache_directory += flaw;
    options_.block_bytes = 4000;
    auto source = open(cat("/files/a.bin?plan=ok,", flaw, ",", flaw, ",ok&id=", flaw));
    EXPECT_EQ(read_all(*source), content_) << flaw;
  }
}

TEST_F(RemoteFiles, DamagedAnswersAreAnErrorInTheEnd) {
  expect_contains(error_of("truncate"), "(4 attempts in ");
  expect_contains(error_of("short"), "the answer has 500 bytes instead of 1000");
  expect_contains(error_of("long"), "the answer is longer than 1000 bytes");
  expect_contains(error_of("shifted"),
                  "bytes 0-999 were asked for, Content-Range is 'bytes 1-1000/10500'");
  expect_contains(error_of("norange"), "without Content-Range");
}

TEST_F(RemoteFiles, APartIsOneWithTheStatusOfAWholeFileToo) {
  auto source = open("/files/a.bin?plan=part200");
  EXPECT_EQ(source->size(), content_.size());
  EXPECT_EQ(read_all(*source), content_);
  EXPECT_EQ(server_.requests("GET /files/a.bin").size(), 12u);  // its size, and 11 blocks
}

TEST_F(RemoteFiles, AFileThatChangesIsAnError) {
  expect_contains(error_of("other"), "has changed on its server: it had 10500 bytes");
  expect_contains(error_of("othertag"), "now ETag another");
  expect_contains(error_of("404"), "status 404; there is no such file: check the address");
  expect_contains(error_of("416"), "has changed");
}

TEST_F(RemoteFiles, ANewVersionIsNotTakenFromTheCache) {
  EXPECT_EQ(read_all(*open("/files/a.bin")), content_);
  std::string other = test_content(content_.size(), "other");
  server_.write("files/a.bin", other);
  EXPECT_EQ(read_all(*open("/files/a.bin")), other);
}

TEST_F(RemoteFiles, TheCacheIsUsedByTheNextProcess) {
  EXPECT_EQ(read_all(*open("/files/a.bin")), content_);
  size_t requests = server_.requests().size();
  EXPECT_EQ(read_all(*open("/files/a.bin")), content_);
  EXPECT_EQ(server_.requests().size(), requests + 1);  // for size and ETag
}

TEST_F(RemoteFiles, TheNextBlockIsReadAhead) {
  auto source = open("/files/a.bin");
  std::string part(1000, '\0');
  auto bytes = std::as_writable_bytes(std::span(part));
  source->read(0, bytes);
  source->read(1000, bytes);
  double end = monotonic_seconds() + 20;
  while (server_.requests("range=bytes=2000-2999").empty() && monotonic_seconds() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_.requests("range=bytes=2000-2999").size(), 1u);
  EXPECT_TRUE(server_.requests("range=bytes=3000-3999").empty());
  source->read(2000, bytes);
  EXPECT_EQ(part, content_.substr(2000, 1000));
  EXPECT_EQ(server_.requests("range=bytes=2000-2999").size(), 1u);
}

TEST_F(RemoteFiles, WhatIsReadAheadEndsWithTheFile) {
  double begin = monotonic_seconds();
  {
    auto source = open("/files/a.bin?plan=hold:2000");
    std::string part(2000, '\0');
    source->read(0, std::as_writable_bytes(std::span(part)));
  }
  EXPECT_LT(monotonic_seconds() - begin, 50);
}

TEST_F(RemoteFiles, AServerWithoutPartsIsFetchedWhole) {
  options_.http.attempts = 2;
  for (const char* plan : {"whole", "chunked", "whole,drop,whole", "chunked,chunked:cut,chunked"}) {
    options_.cache_directory += "x";
    auto source = open(cat("/files/a.bin?plan=", plan, "&id=", plan));
    EXPECT_EQ(read_all(*source), content_) << plan;
  }
  options_.cache_directory += "x";
  user_error([&] { open("/files/a.bin?plan=whole,chunked:cut&id=cut"); });
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(options_.cache_directory / "files"))
    EXPECT_FALSE(file.is_regular_file()) << file.path();
}

}  // namespace
}  // namespace tessera
