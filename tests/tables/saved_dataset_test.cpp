#include "tables/saved_dataset.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

constexpr const char* kState =
    R"({"_data_files": [{"filename": "data-00001.arrow"}, {"filename": "data-00000.arrow"}],
        "_format_type": null, "_split": "train"})";

std::vector<std::string> names(const SavedSplit& split) {
  std::vector<std::string> out;
  for (const auto& file : split.files) out.push_back(file.filename().string());
  return out;
}

TEST(SavedDataset, TakesTheFilesInTheOrderOfTheState) {
  ScratchDirectory directory;
  directory.write("state.json", kState);
  directory.write("data-00000.arrow", "");
  expect_contains(user_error([&] { saved_dataset(directory.path()); }),
                  "names 'data-00001.arrow', and there is no such file; save the data set again");
  directory.write("data-00001.arrow", "");
  const auto splits = saved_dataset(directory.path());
  ASSERT_TRUE(splits.has_value());
  ASSERT_EQ(splits->size(), 1u);
  EXPECT_EQ((*splits)[0].name, "train");
  EXPECT_EQ(names((*splits)[0]),
            (std::vector<std::string>{"data-00001.arrow", "data-00000.arrow"}));
}

TEST(SavedDataset, TakesTheSplitsOfADictionary) {
  ScratchDirectory directory;
  directory.write("dataset_dict.json", R"({"splits": ["train", "test"]})");
  for (const char* split : {"train", "test"}) {
    make_directories(directory / split);
    directory.write(std::filesystem::path(split) / "state.json",
                    R"({"_data_files": [{"filename": "a.arrow"}], "_split": null})");
    directory.write(std::filesystem::path(split) / "a.arrow", "");
  }
  const auto splits = saved_dataset(directory.path());
  ASSERT_TRUE(splits.has_value());
  ASSERT_EQ(splits->size(), 2u);
  EXPECT_EQ((*splits)[1].name, "test");
  EXPECT_EQ((*splits)[1].files[0], directory / "test/a.arrow");
}

TEST(SavedDataset, FindsTheFilesOfACache) {
  ScratchDirectory directory;
  EXPECT_FALSE(saved_dataset(directory.path()).has_value());
  directory.write("dataset_info.json",
                  R"({"splits": {"train": {"name": "train"}, "test": {"name": "test"}}})");
  directory.write("corpus-train-00000-of-00002.arrow", "");
  directory.write("corpus-test.arrow", "");
  directory.write("cache-0123.arrow", "");
  expect_contains(user_error([&] { saved_dataset(directory.path()); }),
                  "1 files of the split 'train', and they are not all of 2");
  directory.write("corpus-train-00001-of-00002.arrow", "");
  const auto splits = saved_dataset(directory.path());
  ASSERT_TRUE(splits.has_value());
  EXPECT_EQ(names((*splits)[0]), (std::vector<std::string>{"corpus-train-00000-of-00002.arrow",
                                                           "corpus-train-00001-of-00002.arrow"}));
  EXPECT_EQ(names((*splits)[1]), (std::vector<std::string>{"corpus-test.arrow"}));
}

// As download_and_prepare leaves it with file_format="parquet".
TEST(SavedDataset, ADescriptionBesideDataOfAnotherFormIsNone) {
  ScratchDirectory directory;
  directory.write("dataset_info.json", R"({"splits": {"train": {"name": "train"}}})");
  directory.write("corpus-train.parquet", "");
  EXPECT_FALSE(saved_dataset(directory.path()).has_value());
}

TEST(SavedDataset, SaysWhereNobodyMayLook) {
  ScratchDirectory directory;
  std::filesystem::create_symlink("state.json", directory / "state.json");  // to itself
  expect_contains(user_error([&] { saved_dataset(directory.path()); }),
                  cat("cannot read '", (directory / "state.json").string(), "': Too many levels"));
}

TEST(SavedDataset, RefusesNamesThatLeadElsewhere) {
  expect_contains(user_error([] {
                    parse_saved_state(R"({"_data_files": [{"filename": "../x"}]})", "state.json");
                  }),
                  "names '../x', which is no file beside it");
  expect_contains(user_error([] {
                    parse_saved_state(
                        R"({"_data_files": [], "_indices_data_files": [{"filename": "i"}]})",
                        "state.json");
                  }),
                  "selects rows by a file of indices, which is not read; save the data set again");
  expect_contains(user_error([] { parse_saved_state("[]", "state.json"); }),
                  "is not a JSON object");
  expect_contains(user_error([] { parse_saved_state("{}", "state.json"); }),
                  "no list \"_data_files\"");
  expect_contains(user_error([] { parse_saved_state(R"({"_data_files": [1]})", "state.json"); }),
                  "a file without a \"filename\"");
  expect_contains(user_error([] { splits_of_dataset_dict(R"({"splits": [1]})", "d.json"); }),
                  "a split that is not a string");
}

}  // namespace
}  // namespace tessera
