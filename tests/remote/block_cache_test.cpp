#include "remote/block_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "remote/fetch_whole.h"
#include "remote/partial_file.h"
#include "remote/range_lock.h"
#include "remote/source.h"
#include "tests/base/child_process.h"
#include "tests/base/comes_true.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

const CachedFile kFile{"a file", "a file of a test, version 1", 1000};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

BlockCache::Fetch fetch_of(const std::string& content, int* count) {
  return [&content, count](std::span<std::byte> out) {
    if (count) ++*count;
    ASSERT_EQ(out.size(), content.size());
    std::memcpy(out.data(), content.data(), out.size());
  };
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<fs::path> stored_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& file : fs::recursive_directory_iterator(directory)) {
    if (file.is_regular_file() && file.path().filename().string().find("lock") == std::string::npos)
      files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Runs `action` in a process of its own.
template <class Action>
pid_t in_child(Action action) {
  pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      status = action() ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(status);
  }
  return child;
}

TEST(BlockFile, EveryDamageIsSeen) {
  std::string content = test_content(100);
  std::string file = content + block_trailer(bytes_of(content), 3, "identity");
  EXPECT_EQ(block_flaw(bytes_of(file), 3, "identity"), "");
  EXPECT_NE(block_flaw(bytes_of(file), 4, "identity"), "");
  EXPECT_NE(block_flaw(bytes_of(file), 3, "another"), "");
  EXPECT_NE(block_flaw(bytes_of(file + "x"), 3, "identity"), "");
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_NE(block_flaw(bytes_of(file).first(size), 3, "identity"), "") << size;
  for (size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_NE(block_flaw(bytes_of(damaged), 3, "identity"), "") << i;
  }
}

TEST(BlockCache, KeepsWhatWasFetched) {
  ScratchDirectory scratch;
  std::string content = test_content(1000);
  int fetched = 0;
  for (int i = 0; i < 3; ++i) {
    BlockCache cache(scratch.path(), 1 << 20, 10);
    EXPECT_EQ(text_of(cache.get(kFile, 7, 1000, fetch_of(content, &fetched))), content);
  }
  EXPECT_EQ(fetched, 1);
  // Another version, or other blocks, have nothing to do with it.
  BlockCache cache(scratch.path(), 1 << 20, 10);
  cache.get({"a file", "version 2", 1000}, 7, 1000, fetch_of(content, &fetched));
  cache.get({"a file", kFile.identity, 2000}, 7, 1000, fetch_of(content, &fetched));
  EXPECT_EQ(fetched, 3);
}

TEST(BlockCache, ADamagedBlockIsFetchedAgain) {
  ScratchDirectory scratch;
  BlockCache cache(scratch.path(), 1 << 20, 10);
  std::string content = test_content(1000);
  int fetched = 0;
  cache.get(kFile, 0, 1000, fetch_of(content, &fetched));
  ASSERT_EQ(stored_in(scratch.path()).size(), 1u);
  fs::path file = stored_in(scratch.path())[0];
  std::string good = read_file(file), flipped = good;
  flipped[500] ^= 1;
  for (const std::string& damaged : {flipped, good.substr(0, 700), good.substr(1), std::string()}) {
    write_file_atomic(file, damaged);
    testing::internal::CaptureStderr();
    EXPECT_EQ(text_of(cache.get(kFile, 0, 1000, fetch_of(content, &fetched))), content);
    expect_contains(testing::internal::GetCapturedStderr(), "is damaged");
    EXPECT_EQ(read_file(file), good);
  }
  EXPECT_EQ(fetched, 5);
}

TEST(BlockCache, AFailureLeavesNothing) {
  ScratchDirectory scratch;
  BlockCache cache(scratch.path(), 1 << 20, 10);
  auto fails = [](std::span<std::byte>) { throw UserError("no network"); };
  EXPECT_EQ(user_error([&] { cache.get(kFile, 0, 1000, fails); }), "no network");
  EXPECT_TRUE(stored_in(scratch.path()).empty());
  std::string content = test_content(1000);
  EXPECT_EQ(text_of(cache.get(kFile, 0, 1000, fetch_of(content, nullptr))), content);
}

TEST(BlockCache, StaysWithinItsBound) {
  ScratchDirectory scratch;
  BlockCache cache(scratch.path(), 10'480, 10);  // ten blocks
  std::string content = test_content(1000);
  int fetched = 0;
  for (uint64_t i = 0; i < 30; ++i) {
    cache.get(kFile, i, 1000, fetch_of(content, &fetched));
    cache.get(kFile, 0, 1000, fetch_of(content, &fetched));  // used all the time
    EXPECT_LE(stored_in(scratch.path()).size(), 11u);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // times of files tell them apart
  }
  EXPECT_EQ(fetched, 30);
  EXPECT_GE(stored_in(scratch.path()).size(), 8u);
  // What a process has left that ended while it wrote goes too; what others write does not.
  fs::path folder = stored_in(scratch.path())[0].parent_path();
  pid_t gone = in_child([] { return true; });
  EXPECT_EQ(wait_for_end(gone, "child"), 0);
  write_file_atomic(folder / cat("00000040.tmp-", gone), "left");
  write_file_atomic(folder / cat("00000041.tmp-", ::getpid()), "written");
  cache.trim_to_bound();
  EXPECT_FALSE(fs::exists(folder / cat("00000040.tmp-", gone)));
  EXPECT_TRUE(fs::exists(folder / cat("00000041.tmp-", ::getpid())));
}

TEST(BlockCache, IsNoReasonToFail) {
  ScratchDirectory scratch;
  scratch.write("file", "in the way");
  BlockCache cache(scratch / "file", 1 << 20, 10);
  std::string content = test_content(1000);
  int fetched = 0;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(text_of(cache.get(kFile, 0, 1000, fetch_of(content, &fetched))), content);
  EXPECT_EQ(fetched, 2);
}

TEST(BlockCache, ManyThreadsFetchABlockOnce) {
  ScratchDirectory scratch;
  BlockCache cache(scratch.path(), 1 << 20, 30);
  std::string content = test_content(1000);
  std::atomic<int> fetched{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      auto bytes = cache.get(kFile, 0, 1000, [&](std::span<std::byte> out) {
        ++fetched;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::memcpy(out.data(), content.data(), out.size());
      });
      right += text_of(bytes) == content;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(fetched, 1);
  EXPECT_EQ(right, 6);
}

TEST(BlockCache, AnotherTakesOverFromAKilledProcess) {
  ScratchDirectory scratch;
  std::string content = test_content(1000);
  pid_t child = in_child([&] {
    BlockCache cache(scratch / "cache", 1 << 20, 30);
    cache.get(kFile, 0, 1000, [&](std::span<std::byte>) {
      write_file_atomic(scratch / "fetching", "");
      ::pause();
    });
    return false;
  });
  ASSERT_TRUE(comes_true([&] { return fs::exists(scratch / "fetching"); }));
  const double begin = monotonic_seconds();
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(child, SIGKILL);
  });
  BlockCache cache(scratch / "cache", 1 << 20, 60);
  int fetched = 0;
  EXPECT_EQ(text_of(cache.get(kFile, 0, 1000, fetch_of(content, &fetched))), content);
  double waited = monotonic_seconds() - begin;
  EXPECT_EQ(fetched, 1);
  EXPECT_GE(waited, 0.1);
  EXPECT_LT(waited, 30);
  killer.join();
  EXPECT_EQ(wait_for_end(child, "child"), 128 + SIGKILL);
}

TEST(BlockCache, AHolderThatHangsIsNotWaitedForForEver) {
  ScratchDirectory scratch;
  std::string content = test_content(1000);
  BlockCache cache(scratch.path(), 1 << 20, 0.2);
  std::atomic<bool> goes_on{false};
  int fetched = 0;
  std::thread hangs([&] {
    BlockCache other(scratch.path(), 1 << 20, 10);
    other.get(kFile, 0, 1000, [&](std::span<std::byte> out) {
      comes_true([&] { return goes_on.load(); });
      std::memcpy(out.data(), content.data(), out.size());
    });
  });
  ASSERT_TRUE(comes_true([&] {
    for (const auto& file : fs::recursive_directory_iterator(scratch.path()))
      if (file.path().filename() == "lock") {
        RangeLock probe(file.path(), 0, 0);
        return !probe.is_held();
      }
    return false;
  }));
  EXPECT_EQ(text_of(cache.get(kFile, 0, 1000, fetch_of(content, &fetched))), content);
  EXPECT_EQ(fetched, 1);
  goes_on = true;
  hangs.join();
}

TEST(SharedCache, TwoProcessesFetchEveryBlockOnce) {
  LocalServer server;
  std::string content = test_content(20'300);
  server.write("files/a.bin", content);
  RemoteOptions options = server.options();
  auto reads_all = [&] {
    auto source = open_source(server.url("/files/a.bin?plan=ok,slow:0.02"), options);
    return read_all(*source) == content;
  };
  pid_t first = in_child(reads_all), second = in_child(reads_all);
  EXPECT_EQ(wait_for_end(first, "first"), 0);
  EXPECT_EQ(wait_for_end(second, "second"), 0);
  EXPECT_EQ(server.requests("range=bytes=0-0 ").size(), 2u);
  EXPECT_EQ(server.requests().size(), 2u + 21u);
}

TEST(SharedCache, AFetcherThatIsKilledLeavesNoWholeFile) {
  LocalServer server;
  std::string content = test_content(5000);
  server.write("files/a.bin", content);
  RemoteOptions options = server.options();
  RemoteEntry entry;
  entry.url = server.url("/files/a.bin?plan=ok,ok,slow:30,ok");
  entry.sha256 = hex(sha256(content));
  entry.size = content.size();
  fs::path path = options.cache_directory / "model.bin";
  RemoteLocation location;
  location.url = entry.url;
  location.name = "model.bin";
  location.size = entry.size;
  pid_t child = in_child([&] {
    fetch_whole(location, entry, path, options);
    return true;
  });
  // Two parts have come, and the third is being waited for.
  ASSERT_TRUE(comes_true([&] { return begun_bytes(path) >= 2000; }));
  ::kill(child, SIGKILL);
  EXPECT_EQ(wait_for_end(child, "child"), 128 + SIGKILL);
  EXPECT_FALSE(fs::exists(path));
  fetch_whole(location, entry, path, options);
  EXPECT_EQ(read_file(path), content);
  // What had come was not fetched again.
  for (int block : {0, 1})
    EXPECT_EQ(server.requests(cat("range=bytes=", block * 1000, "-")).size(), 1u) << block;
  // What the dead process had begun is gone.
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator()), 2);
  entry.sha256 = std::string(64, '0');
  expect_contains(
      user_error([&] { fetch_whole(location, entry, options.cache_directory / "b", options); }),
      "'model.bin' arrived with the hash ");
  EXPECT_FALSE(fs::exists(options.cache_directory / "b"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator()), 2);
}

std::string text(const PartialFile& file) {
  std::string content(file.kept(), ' ');
  file.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}
void append(PartialFile& file, const std::string& content) {
  file.write(std::as_bytes(std::span(content)));
}
size_t files_in(const ScratchDirectory& directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory.path()), fs::directory_iterator()));
}

TEST(PartialFile, GoesOnWithTheSameContentOnly) {
  ScratchDirectory scratch;
  const fs::path path = scratch / "a";
  EXPECT_EQ(begun_bytes(path), 0u);
  append(*std::make_unique<PartialFile>(path, "one", 4), "0123456789");
  EXPECT_EQ(begun_bytes(path), 10u);
  EXPECT_EQ(begun_bytes(scratch / "b"), 0u);
  EXPECT_EQ(begun_bytes(scratch / "none" / "a"), 0u);
  {
    PartialFile again(path, "one", 4);
    EXPECT_EQ(text(again), "01234567");
    PartialFile beside(path, "one", 4);  // what the first has nobody else takes
    EXPECT_EQ(beside.kept(), 0u);
    beside.discard();
    append(again, "89ab");
  }
  EXPECT_EQ(files_in(scratch), 1u);
  {
    PartialFile other(path, "two", 4);
    EXPECT_EQ(other.kept(), 0u);
    EXPECT_EQ(files_in(scratch), 1u);
    append(other, "abcd");
    other.commit();
  }
  EXPECT_EQ(read_file(path), "abcd");
  EXPECT_EQ(files_in(scratch), 1u);
}

TEST(PartialFile, OfAProcessThatWasKilledIsTaken) {
  ScratchDirectory scratch;
  const fs::path path = scratch / "a";
  for (int i = 0; i < 3; ++i) {
    const pid_t child = in_child([&] {
      PartialFile file(path, "one", 4);
      append(file, "0123");
      ::kill(::getpid(), SIGKILL);
      return true;
    });
    EXPECT_EQ(wait_for_end(child, "child"), 128 + SIGKILL);
    EXPECT_EQ(files_in(scratch), 1u);
  }
  PartialFile file(path, "one", 4);
  EXPECT_EQ(text(file), "012301230123");
}

TEST(PartialFile, WithoutRoomNothingIsLeft) {
  ScratchDirectory scratch;
  const pid_t child = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    PartialFile file(scratch / "a", "one", 4);
    expect_contains(user_error([&] { append(file, std::string(2000, 'x')); }), "File too large");
    return !testing::Test::HasFailure();
  });
  EXPECT_EQ(wait_for_end(child, "child"), 0);
  EXPECT_EQ(files_in(scratch), 0u);
}

}  // namespace
}  // namespace tessera
