#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <limits>
#include <set>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/line_writer.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/random.h"
#include "base/shape.h"
#include "base/terminal_text.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "tests/base/error_expectation.h"
#include "tests/base/memory_growth.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

TEST(OwnProgram, IsHashedInLittleMemory) {
  const auto size = static_cast<int64_t>(std::filesystem::file_size(program_file()));
  ASSERT_GT(size, 2 * kMiB);
  expect_growth_below(growth_of([] { program_hash(); }), size / 2);
  EXPECT_EQ(program_hash(), hash_text(read_file(program_file())));
}

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(BF16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BF16(1.00390625f).bits, 0x3f80);  // halfway: to even
  EXPECT_EQ(BF16(1.01171875f).bits, 0x3f82);  // halfway: to even
  EXPECT_EQ(static_cast<float>(BF16(-2.5f)), -2.5f);
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(BF16(std::numeric_limits<float>::max()))));
}

TEST(Philox, MatchesPublishedVectors) {
  // Known answers of Random123: philox4x32-10 with zero and with all-ones counter and key.
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, Bits16AreTheHalvesOfTheWordsOf16Calls) {
  constexpr uint64_t kKey = 0x123456789abcdef0u, kStream = stream_of("bits");
  for (uint64_t block : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
    std::multiset<uint32_t> halves, bits;
    for (uint64_t call = 0; call < 16; ++call) {
      for (uint32_t word : philox(kKey, kStream, block * 16 + call)) {
        halves.insert(word & 0xffff);
        halves.insert(word >> 16);
      }
    }
    for (uint64_t i = 0; i < 128; ++i) bits.insert(random_bits16(kKey, kStream, block * 128 + i));
    EXPECT_EQ(bits, halves);
  }
}

TEST(Random, NormalHasUnitVariance) {
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    double x = random_normal(7, stream_of("w"), static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(ThreadPool, RunsEveryTileOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> hits(37);
      pool.run(37, [&](int64_t tile, int thread) {
        ASSERT_LT(thread, threads);
        hits[static_cast<size_t>(tile)].fetch_add(1);
      });
      for (auto& h : hits) EXPECT_EQ(h.load(), 1);
    }
  }
}

TEST(ThreadPool, RethrowsTheFirstError) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(20,
                        [](int64_t tile, int) {
                          if (tile == 7) throw UserError("tile 7");
                        }),
               UserError);
  std::atomic<int> count{0};
  pool.run(20, [&](int64_t, int) { ++count; });  // still usable
  EXPECT_EQ(count.load(), 20);
}

TEST(Text, FormatsUnits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(format_count(6889410560.0), "6.89 B");
  EXPECT_EQ(format_duration(3725), "1h02m");
  EXPECT_EQ(cat("a", 1, '/', 0.5, true), "a1/0.5true");
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
  EXPECT_EQ(trim("  x y \n"), "x y");
}

TEST(Text, NearestNameIsSuggestedOnlyWhenClose) {
  std::vector<std::string> names{"max_steps", "epochs", "train_batch_size"};
  EXPECT_EQ(nearest("max_step", names), "max_steps");
  EXPECT_EQ(nearest("epoch", names), "epochs");
  EXPECT_EQ(nearest("zzzzzz", names), "");
}

TEST(Text, LinesAreTakenWithoutTheirEnds) {
  std::string_view text = "one\r\n\ntwo\rthree\n\r\nend";
  std::vector<std::string_view> lines;
  while (!text.empty()) lines.push_back(take_line(text));
  EXPECT_EQ(lines, (std::vector<std::string_view>{"one", "", "two\rthree", "", "end"}));
}

TEST(Text, TerminalsGetNoControls) {
  const std::string plain =
      "a\tb\n\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xe9 \xc3";  // Latin-1 too
  EXPECT_EQ(without_controls(plain), plain);
  EXPECT_EQ(without_controls("\x1b]0;x\x07\r\x7f"), "\\x1b]0;x\\x07\\x0d\\x7f");
  EXPECT_EQ(without_controls("\xc2\x9b[1m \x9b[1m\xc3\x1b"), "\\x9b[1m \\x9b[1m\xc3\\x1b");
  testing::internal::CaptureStderr();
  TESSERA_WARN("'a\x1b[31mb' is there");
  expect_contains(testing::internal::GetCapturedStderr(), "] 'a\\x1b[31mb' is there\n");
}

TEST(AtomicFile, KeepsLinksAndDevices) {
  ScratchDirectory dir;
  write_file_atomic(dir / "real", "old");
  std::filesystem::create_symlink("real", dir / "link");
  write_file_atomic(dir / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "real"), "new");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const int reader = ::open((dir / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomic(dir / "pipe", "through");
  std::string read(7, ' ');
  EXPECT_EQ(::read(reader, read.data(), read.size()), 7);
  ::close(reader);
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(dir / "pipe"));
}

TEST(AtomicFile, LeavesTheOldContentUntilCommit) {
  ScratchDirectory dir;
  write_file_atomic(dir / "f", "old");
  {
    AtomicFile file(dir / "f");
    file.write("new");
  }
  EXPECT_EQ(read_file(dir / "f"), "old");
  auto files = std::filesystem::directory_iterator(dir.path());
  EXPECT_EQ(std::distance(files, {}), 1) << "something was left aside";
  write_file_atomic(dir / "f", "new");
  EXPECT_EQ(read_file(dir / "f"), "new");
  EXPECT_EQ(MappedFile(dir / "f").text(), "new");
  EXPECT_THROW(read_file(dir / "missing"), UserError);
  EXPECT_THROW(read_file(dir.path()), UserError);
}

TEST(File, IsThereOrNotOrCannotBeTold) {
  ScratchDirectory dir;
  write_file_atomic(dir / "f", "content");
  std::filesystem::create_symlink(dir / "f", dir / "link");
  std::filesystem::create_symlink(dir / "none", dir / "broken");
  std::filesystem::create_symlink(dir / "loop", dir / "loop");
  for (const auto& path : {dir / "f", dir / "link"}) EXPECT_TRUE(is_there(path) && is_file(path));
  EXPECT_TRUE(is_there(dir.path()) && !is_file(dir.path()));
  for (const auto& path : {dir / "none", dir / "broken", dir / "f" / "below"})
    EXPECT_FALSE(is_there(path) || is_file(path)) << path;
  for (auto ask : {is_there, is_file})
    expect_contains(user_error([&] { ask(dir / "loop"); }),
                    "loop': Too many levels of symbolic links");
}

TEST(ReadFile, TellsWhatIsGone) {
  ScratchDirectory dir;
  write_file_atomic(dir / "f", "0123456789");
  ReadFile file(dir / "f");
  std::array<std::byte, 4> bytes;
  file.read(6, bytes);
  EXPECT_EQ(bytes[3], std::byte{'9'});
  std::filesystem::resize_file(dir / "f", 8);
  try {
    file.read(6, bytes);
    FAIL() << "bytes that are gone were read";
  } catch (const UserError& error) {
    std::string text = error.what();
    EXPECT_NE(text.find("it had 10 bytes and has none any more at 8"), std::string::npos) << text;
  }
}

TEST(LineWriter, SaysWhatIsMissingWhereItIsMissing) {
  ScratchDirectory dir;
  int fd = ::open((dir / "log").c_str(), O_WRONLY | O_CREAT, 0666);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit full{12, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &full);
  LineWriter writer(fd, "here: ");
  for (int i = 1; i < 5; ++i) writer.write(cat("line ", i, "\n"));
  std::string loss = writer.loss();
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(loss, "3 lines are missing here: File too large");
  writer.write("line 5\n");
  writer.write("line 6\n");
  EXPECT_EQ(read_file(dir / "log"), cat("line 1\nline \nhere: ", loss, "\nline 5\nline 6\n"));
  EXPECT_EQ(writer.loss(), "");
  ::close(fd);
}

TEST(Hash, StreamingEqualsOneShot) {
  std::string text(100000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31);
  Hasher hasher;
  hasher.add(text.data(), 12345);
  hasher.add(text.data() + 12345, text.size() - 12345);
  EXPECT_EQ(hasher.digest(), hash_text(text));
  EXPECT_EQ(hex(255), "00000000000000ff");
}

}  // namespace
}  // namespace tessera
