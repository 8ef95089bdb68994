#include "torch_files/zip_directory.h"

#include <functional>

#include "base/error.h"
#include "tests/base/error_expectation.h"
#include "tests/torch_files/zip_content.h"

namespace tessera {
namespace {

std::vector<ZipEntry> read(const std::string& content) {
  return read_zip_directory(bytes_of(content), "here.pt");
}

void expect_refused(const std::string& content, std::string_view reason,
                    Caller caller = Caller::current()) {
  std::string message = user_error([&] { read(content); }, caller);
  expect_contains(message, "'here.pt' cannot be read as a zip archive: ", caller);
  expect_contains(message, reason, caller);
}

TEST(ZipDirectory, FindsContents) {
  for (bool wide : {false, true}) {
    const std::string content = zip_of({{"b", "second"}, {"a", ""}, {"c/d", "x"}}, {.zip64 = wide});
    std::vector<ZipEntry> entries = read(content);
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].name, "a");
    EXPECT_EQ(entries[0].bytes, 0u);
    EXPECT_EQ(content.substr(entries[1].offset, entries[1].bytes), "second");
    EXPECT_EQ(content.substr(entries[2].offset, entries[2].bytes), "x");
  }
  EXPECT_TRUE(read(zip_of({})).empty());
}

TEST(ZipDirectory, RefusesWhatIsNotStored) {
  expect_refused(zip_of({{"a", "x"}}, {.method = 8}), "entry 'a' is compressed");
  expect_refused(zip_of({{"a", "x"}}, {.flags = 1}), "entry 'a' is encrypted");
  expect_refused(zip_of({{"a", "x"}, {"a", "y"}}), "two entries 'a'");
}

TEST(ZipDirectory, EveryTruncationIsNoticed) {
  for (bool wide : {false, true}) {
    const std::string whole = zip_of({{"a", "content"}, {"b", "more"}}, {.zip64 = wide});
    for (size_t length = 0; length < whole.size(); ++length)
      expect_refused(whole.substr(0, length), "");
  }
  expect_refused("", "its end is missing (is it truncated?)");
  expect_refused(zip_of({{"a", "x"}}) + "more", "its end is missing");
}

// Whatever a byte is changed to, contents lie in the archive or it is refused.
TEST(ZipDirectory, ChangedBytesLeadNowhereElse) {
  const std::string whole = zip_of({{"a", "content"}, {"b", "more"}}, {.zip64 = true});
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int change : {1, 0x80, 0xff}) {
      std::string content = whole;
      content[at] = static_cast<char>(content[at] ^ change);
      try {
        for (const ZipEntry& entry : read(content)) {
          ASSERT_LE(entry.offset, content.size());
          ASSERT_LE(entry.bytes, content.size() - entry.offset);
        }
      } catch (const UserError&) {
      }
    }
  }
}

TEST(ZipDirectory, RefusesEntriesThatOverlapOrLeadOut) {
  std::string content = zip_of({{"a", "content"}, {"b", "more"}});
  const size_t first = content.find("PK\1\2"), second = content.find("PK\1\2", first + 1);
  std::string overlap = content;
  overlap.replace(second + 42, 4, content.substr(first + 42, 4));
  expect_refused(overlap, "two of its entries overlap");
  std::string away = content;
  away[second + 44] = '\x7f';
  expect_refused(away, "entry 'b' is not where its directory says");
  std::string longer = content;
  longer[second + 20] = longer[second + 24] = '\x7f';
  expect_refused(longer, "entry 'b' leads out of it");
  std::string unequal = content;
  unequal[second + 20] = '\1';
  expect_refused(unequal, "lengths of its entry 'b' disagree");
  std::string count = content;
  count[content.size() - 12] = count[content.size() - 14] = '\xff';
  expect_refused(count, "its directory does not lie within it");
}

}  // namespace
}  // namespace tessera
