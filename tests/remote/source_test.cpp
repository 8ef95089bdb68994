#include "remote/source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

// Sets variables of the environment while it lives.
class Environment {
 public:
  explicit Environment(const std::map<const char*, const char*>& values) {
    for (const char* name :
         {"HF_ENDPOINT", "HF_TOKEN", "HF_HOME", "HF_HUB_OFFLINE", "AWS_ACCESS_KEY_ID",
          "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
    for (auto [name, value] : values) ::setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      ::unsetenv(name);
      if (value) ::setenv(name, value->c_str(), 1);
    }
  }

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST(RemoteOptions, ComeFromTheEnvironment) {
  ScratchDirectory scratch;
  std::string home = scratch.path().string();
  scratch.write("token", "hf_from_file\n");
  {
    Environment set(std::map<const char*, const char*>{{"HOME", "/h"}});
    RemoteOptions options = remote_options_from_environment();
    EXPECT_EQ(options.cache_directory, "/h/.cache/tessera");
    EXPECT_EQ(options.hub.home, "/h/.cache/huggingface");
    EXPECT_EQ(options.hub.endpoint, "https://huggingface.co");
    EXPECT_EQ(options.hub.token, "");
    EXPECT_FALSE(options.hub.offline);
    EXPECT_EQ(options.s3.region, "us-east-1");
  }
  Environment set({{"HF_HOME", home.c_str()},
                   {"HF_ENDPOINT", "http://hub/"},
                   {"HF_HUB_OFFLINE", "1"},
                   {"XDG_CACHE_HOME", "/c"},
                   {"AWS_DEFAULT_REGION", "eu-west-1"},
                   {"AWS_ENDPOINT_URL", "http://s3/"},
                   {"AWS_ACCESS_KEY_ID", "key"}});
  RemoteOptions options = remote_options_from_environment();
  EXPECT_EQ(options.hub.token, "hf_from_file");
  EXPECT_EQ(options.hub.endpoint, "http://hub");
  EXPECT_TRUE(options.hub.offline);
  EXPECT_EQ(options.cache_directory, "/c/tessera");
  EXPECT_EQ(options.s3.region, "eu-west-1");
  EXPECT_EQ(options.s3.endpoint, "http://s3");
  EXPECT_EQ(options.s3.access_key, "key");
  ::setenv("HF_TOKEN", "hf_a\nX-Injected: 1", 1);
  std::string message = user_error([] { remote_options_from_environment(); });
  expect_contains(message, "HF_TOKEN holds what is no token");
  expect_lacks(message, "hf_a");
}

TEST(Source, LocalFiles) {
  ScratchDirectory scratch;
  make_directories(scratch / "sub");
  make_directories(scratch / ".hidden");
  scratch.write("b.txt", "bb");
  scratch.write("sub/a.txt", "a");
  scratch.write(".hidden/x", "x");
  scratch.write(".x", "x");
  RemoteOptions options;
  auto entries = list_files(scratch.path().string(), options);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].path, "b.txt");
  EXPECT_EQ(entries[0].size, 2u);
  EXPECT_EQ(entries[1].path, "sub/a.txt");
  EXPECT_EQ(read_all(*open_source(entries[1], options)), "a");
  EXPECT_EQ(fetch_file(entries[1], options), scratch / "sub/a.txt");
  EXPECT_EQ(fetch_directory(entries, options), scratch.path());
  EXPECT_EQ(read_all(*open_source((scratch / "b.txt").string(), options)), "bb");
  expect_contains(user_error([&] { list_files((scratch / "none").string(), options); }),
                  "cannot read '");
  EXPECT_FALSE(is_remote_name((scratch / "none").string()));
  EXPECT_TRUE(is_remote_name("s3://b/k"));
  EXPECT_TRUE(is_remote_name("c4"));
}

TEST(Source, AnAddress) {
  LocalServer server;
  RemoteOptions options = server.options();
  std::string content = test_content(2345);
  server.write("files/a b.bin", content);
  std::string url = server.url("/files/a%20b.bin?X-Signature=secret");
  auto entries = list_files(url, options);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, "a b.bin");
  EXPECT_EQ(entries[0].size, content.size());
  auto source = open_source(entries[0], options);
  EXPECT_EQ(read_all(*source), content);
  expect_lacks(source->name(), "secret");
  EXPECT_EQ(read_file(fetch_file(entries[0], options)), content);
  std::string message =
      user_error([&] { list_files(server.url("/files/none?X-Signature=secret"), options); });
  expect_contains(message, "status 404");
  expect_lacks(message, "secret");
}

TEST(Source, AFileThatChangesBehindItsListingIsRefused) {
  LocalServer server;
  RemoteOptions options = server.options();
  server.write("files/a.txt", "old");
  auto entry_of = [&](const std::string& query) {
    return list_files(server.url("/files/a.txt" + query), options)[0];
  };
  const RemoteEntry parts = entry_of(""), whole = entry_of("?plan=whole");
  EXPECT_EQ(read_all(*open_source(parts, options)), "old");
  EXPECT_EQ(read_all(*open_source(whole, options)), "old");
  server.write("files/a.txt", "new");
  expect_contains(user_error([&] { open_source(parts, options); }),
                  "a.txt' has changed on its server: it had 3 bytes and ETag ");
  expect_contains(user_error([&] { fetch_file(parts, options); }), "has changed on its server");
  server.write("files/a.txt", "longer");
  expect_contains(user_error([&] { open_source(whole, options); }), "it had 3 bytes; start again");
}

// A server that says neither ETag nor date, nor answers parts.
TEST(Source, WhatNothingTellsFromLaterVersionsIsFetchedOnceAProcess) {
  LocalServer server;
  RemoteOptions options = server.options();
  const std::string content = test_content(2000);
  server.write("files/a.txt", content);
  const std::string url = server.url("/files/a.txt?plan=whole");
  auto copies = [&] {
    namespace fs = std::filesystem;
    std::error_code none;
    fs::recursive_directory_iterator files(options.cache_directory / "files", none), end;
    return std::count_if(files, end, [](const auto& file) { return file.is_regular_file(); });
  };
  auto read_often = [&] {
    const RemoteEntry entry = list_files(url, options)[0];
    bool same = true;
    for (int i = 0; i < 3; ++i) same &= read_all(*open_source(entry, options)) == content;
    return same && copies() == 1;
  };
  // One that is killed cannot remove its copy: the next one does.
  for (const bool killed : {true, false}) {
    const pid_t child = ::fork();
    if (child == 0 && killed) ::_exit(read_often() ? 0 : 1);
    if (child == 0) std::exit(read_often() ? 0 : 1);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(copies(), killed ? 1 : 0);
  }
  EXPECT_TRUE(read_often());
  EXPECT_EQ(copies(), 1);
}

TEST(Source, ACacheThatCannotBeWrittenIsToldOnceWithItsCause) {
  LocalServer server;
  ScratchDirectory scratch;
  RemoteOptions options = server.options();
  options.cache_directory = scratch.write("file", "in the way");
  testing::internal::CaptureStderr();
  for (const char* name : {"a", "b"}) {
    server.write(cat("files/", name), name);
    EXPECT_EQ(read_all(*open_source(server.url(cat("/files/", name)), options)), name);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log, "what is fetched is not kept: cannot create directory '");
  expect_contains(log, "Not a directory");
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log;
}

TEST(Source, RoomIsWantedForWhatIsNotThereYet) {
  namespace fs = std::filesystem;
  LocalServer server;
  RemoteOptions options = server.options();
  server.write("hub/models/o/m.json", R"({"revisions": ["main"]})");
  server.write("hub/models/o/m/main/a.bin", test_content(2000));
  auto entries = list_files("hf://o/m", options);
  ASSERT_EQ(entries.size(), 1u);
  make_directories(options.cache_directory);
  entries[0].size = fs::space(options.cache_directory).available + (uint64_t{1} << 30);
  auto refusal = [&] { return user_error([&] { fetch_directory(entries, options); }); };
  expect_contains(refusal(), "is room for");
  // Cut off at its end; a file of zeros takes no room.
  const fs::path begun = options.cache_directory / "files" /
                         hex(sha256(cat("sha256 ", entries[0].sha256))).substr(0, 32) /
                         "a.bin.partial-x";
  make_directories(begun.parent_path());
  write_file_atomic(begun, "");
  fs::resize_file(begun, entries[0].size);
  expect_contains(refusal(), "has changed on its server: it had");
}

TEST(Source, ATokenOfTheHubIsForTheHub) {
  LocalServer server;
  RemoteOptions options = server.options();
  options.hub.token = "hf_secret";
  server.write("files/a.bin", "content");
  EXPECT_EQ(read_all(*open_source(server.url("/files/a.bin"), options)), "content");
  options.cache_directory += "x";
  EXPECT_EQ(read_all(*open_source(server.other_url("/files/a.bin"), options)), "content");
  for (const auto& line : server.requests("host=localhost")) expect_contains(line, "auth=- ");
  for (const auto& line : server.requests("host=127.0.0.1")) expect_contains(line, "hf_secret");
}

TEST(Source, PathsOfListingsStayBelowTheirDirectory) {
  RemoteOptions options;
  RemoteEntry entry;
  entry.path = "../escape";
  entry.url = "s3://bucket/../escape";
  expect_contains(user_error([&] { fetch_directory({entry}, options); }),
                  "is no path below a directory");
}

}  // namespace
}  // namespace tessera
