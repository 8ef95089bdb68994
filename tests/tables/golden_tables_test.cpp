#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/file.h"
#include "tables/table.h"
#include "tests/tables/table_text.h"

namespace tessera {
namespace {

std::vector<std::filesystem::path> golden_tables() {
  std::vector<std::filesystem::path> paths;
  const auto folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/goldens/tables";
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".arrow" || entry.path().extension() == ".parquet")
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string text_of(const std::filesystem::path& path, bool backwards) {
  return table_text(*open_table(std::make_shared<ReadFile>(path)), backwards);
}

// What pyarrow wrote and reads, written down by tools/goldens/table_goldens.py.
TEST(GoldenTables, AreReadAsPyarrowReadsThem) {
  const auto paths = golden_tables();
  ASSERT_GE(paths.size(), 20u);
  for (const auto& path : paths) {
    auto expected = path;
    expected.replace_extension(".expected");
    const std::string text = read_file(expected);
    EXPECT_EQ(text_of(path, false), text) << path;
    EXPECT_EQ(text_of(path, true), text) << path << ", last batch first";
  }
}

}  // namespace
}  // namespace tessera
