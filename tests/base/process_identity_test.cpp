#include "base/process_identity.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/ended_process.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

// The four parts of a suffix.
std::vector<std::string> parts_of(const std::string& suffix) {
  std::vector<std::string> parts;
  for (std::string_view part : split(suffix, '.')) parts.emplace_back(part);
  return parts;
}

TEST(UniqueSuffix, DiffersEachTime) {
  std::string one = unique_suffix(), other = unique_suffix();
  EXPECT_NE(one, other);
  EXPECT_TRUE(is_unique_suffix(one));
  EXPECT_TRUE(is_unique_suffix("77"));
  for (const char* text : {"", "x", "0", "-1", "7.", "7.8.9", "7.8.g.1", "7.8.9.1.2"})
    EXPECT_FALSE(is_unique_suffix(text)) << text;
}

TEST(UniqueSuffix, TellsWhetherItsMakerHasEnded) {
  std::string own = unique_suffix();
  EXPECT_TRUE(made_here(own));
  EXPECT_FALSE(maker_has_ended(own));
  std::string ended = ended_process();
  EXPECT_FALSE(made_here(ended));
  EXPECT_TRUE(maker_has_ended(ended));
}

// A number that was given to another process since.
TEST(UniqueSuffix, ANumberAloneIsNoProcess) {
  auto own = parts_of(unique_suffix());
  std::string earlier = cat(own[0], ".", std::stoll(own[1]) - 1, ".", own[2], ".", own[3]);
  EXPECT_FALSE(made_here(earlier));
  EXPECT_TRUE(maker_has_ended(earlier));
}

// In another container or on another host, where the same numbers are other processes.
TEST(UniqueSuffix, OfAnotherPlaceNothingIsKnown) {
  auto ended = parts_of(ended_process());
  std::string elsewhere = cat(ended[0], ".", ended[1], ".0123456789abcdef.", ended[3]);
  EXPECT_TRUE(is_unique_suffix(elsewhere));
  EXPECT_FALSE(maker_has_ended(elsewhere));
  auto own = parts_of(unique_suffix());
  EXPECT_FALSE(made_here(cat(own[0], ".", own[1], ".0123456789abcdef.", own[3])));
}

TEST(ReadFile, RefusesWhatIsNoFileAtOnce) {
  ScratchDirectory scratch;
  const std::string pipe = scratch / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const std::string message =
        cat("cannot read '", path, "': it is no file but a pipe, a device or a socket");
    EXPECT_EQ(user_error([&] { read_file(path); }), message);
    EXPECT_EQ(user_error([&] { MappedFile{path}; }), message);
  }
}

// They are regular files that have no bytes.
TEST(ReadFile, RefusesFilesOfTheKernelThatDoNotSayHowLongTheyAre) {
  EXPECT_NE(user_error([&] { ReadFile{"/proc/self/status"}; }).find("how long it is"),
            std::string::npos);
  EXPECT_NE(user_error([&] { ReadFile{"/proc/self/mem"}; }).find("cannot read '/proc/self/mem'"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
