// The main function of all tests. With `--source NAME_test.cpp` only the tests of that source run.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace {

// "SUITE.TEST:SUITE.TEST...", for --gtest_filter; empty if `source` has no tests.
std::string tests_of(std::string_view source) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (std::filesystem::path(test.file()).filename() == source) {
        filter += std::string(suite.name()) + "." + test.name() + ":";
      }
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  if (argc != 3 || std::string_view(argv[1]) != "--source") {
    std::fprintf(stderr, "%s takes options of GoogleTest, or --source NAME_test.cpp\n", argv[0]);
    return 2;
  }
  const std::string filter = tests_of(argv[2]);
  if (filter.empty()) {
    std::fprintf(stderr, "%s has no tests of %s\n", argv[0], argv[2]);
    return 2;
  }
  testing::GTEST_FLAG(filter) = filter;
  return RUN_ALL_TESTS();
}
