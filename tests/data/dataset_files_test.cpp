#include "data/dataset_files.h"

#include <gtest/gtest.h>

#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {

std::vector<std::string> names(const std::vector<RemoteEntry>& files) {
  std::vector<std::string> result;
  for (const auto& file : files)
    result.push_back(std::filesystem::path(file.url).filename().string());
  return result;
}
using Names = std::vector<std::string>;

class DatasetFilesTest : public testing::Test {
 protected:
  void fill(const Names& files) {
    for (const auto& name : files) directory_.write(name, "text");
  }
  DatasetFiles find() { return find_dataset_files({.dataset = directory_.path()}); }
  ScratchDirectory directory_;
};

TEST_F(DatasetFilesTest, AFileIsTrainingText) {
  auto file = directory_.write("valid.txt", "x");  // its name does not matter
  auto files = find_dataset_files({.dataset = file});
  ASSERT_EQ(files.training.size(), 1u);
  EXPECT_EQ(files.training[0].url, file);
  EXPECT_EQ(files.training[0].size, 1u);
  EXPECT_TRUE(files.validation.empty());
}

TEST_F(DatasetFilesTest, NamesInADirectoryDecideAndOrder) {
  fill({"train_1.txt", "train_0.txt", "Training.txt", "val.txt", "valid-2.txt", "validation.gz",
        "test.jsonl", "README.md", ".train_hidden", "values.txt"});
  make_directories(directory_ / "train_subdirectory");
  EXPECT_EQ(names(find().training), (Names{"Training.txt", "train_0.txt", "train_1.txt"}));
  EXPECT_EQ(names(find().validation),
            (Names{"test.jsonl", "val.txt", "valid-2.txt", "validation.gz"}));
}

TEST_F(DatasetFilesTest, FilesThatAreLeftAloneAreNamedOnce) {
  auto log = [&] {
    testing::internal::CaptureStderr();
    find();
    return testing::internal::GetCapturedStderr();
  };
  fill({"train.txt", "val.txt", "README.md"});
  EXPECT_EQ(log(), "");
  fill({"notes.txt"});
  expect_contains(log(), "1 file whose name says neither train nor validation is left alone: '");
  fill({"b.txt"});
  expect_contains(log(), cat("2 files whose names say neither train nor validation are left alone, "
                             "the first: '",
                             (directory_ / "b.txt").string(), "'"));
  EXPECT_EQ(log(), "");
}

TEST_F(DatasetFilesTest, NamesWithAPrefix) {
  fill({"c4-validation.00000-of-00008.json.gz", "c4-train.00001-of-01024.json.gz",
        "c4-train.00000-of-01024.json.gz"});
  EXPECT_EQ(names(find().training),
            (Names{"c4-train.00000-of-01024.json.gz", "c4-train.00001-of-01024.json.gz"}));
  EXPECT_EQ(names(find().validation), Names{"c4-validation.00000-of-00008.json.gz"});
}

TEST_F(DatasetFilesTest, WithoutATrainingNameAllOthersAreTraining) {
  fill({"b", "a"});
  EXPECT_EQ(names(find().training), (Names{"a", "b"}));
  EXPECT_TRUE(find().validation.empty());
  fill({"val"});
  EXPECT_EQ(names(find().training), (Names{"a", "b"}));
  EXPECT_EQ(names(find().validation), Names{"val"});
}

TEST_F(DatasetFilesTest, DirectoriesAreReadInDepthInTheOrderOfPaths) {
  for (const char* folder : {"train/b", "validation", ".cache"}) {
    make_directories(directory_ / folder);
  }
  fill({"train/b/1.txt", "train/a.txt", "train/b/0.txt", "validation/0.txt", ".cache/train.txt",
        "README.md", "train/val_0.txt"});
  std::filesystem::create_directory_symlink(directory_ / "train", directory_ / "train_again");
  auto below = [&](const std::vector<RemoteEntry>& files) {
    Names paths;
    for (const auto& file : files) paths.push_back(file.path);
    return paths;
  };
  EXPECT_EQ(below(find().training), (Names{"train/a.txt", "train/b/0.txt", "train/b/1.txt"}));
  EXPECT_EQ(below(find().validation), (Names{"train/val_0.txt", "validation/0.txt"}));
}

TEST_F(DatasetFilesTest, WhatIsLeftOutIsNamedWhereNothingIsFound) {
  make_directories(directory_ / "empty");
  fill({".hidden"});
  std::filesystem::create_directory_symlink(directory_ / "empty", directory_ / "link");
  expect_contains(user_error([&] { find(); }),
                  "left out: .hidden (hidden), link (link to a directory)");
}

TEST_F(DatasetFilesTest, NamesOnTheHubSayWhatToDoWithoutIt) {
  RemoteOptions remote;
  remote.hub.offline = true;
  remote.hub.home = directory_ / "home";
  std::string message =
      user_error([&] { find_dataset_files({.dataset = "some-org/some.text"}, remote); });
  expect_contains(message, "some-org/some.text");
  expect_contains(message, "HF_HUB_OFFLINE");
}

// A card's split, and not the name of the file, says what that is for.
TEST_F(DatasetFilesTest, TheCardOfARepositoryTellsWhatIsTrainedOn) {
  LocalServer server;
  server.write("hub/datasets/o/n.json", R"({"revisions": ["main"]})");
  for (const char* name : {"test.json", "train.json", "more.json"})
    server.write(cat("hub/datasets/o/n/main/", name), "{}");
  server.write("hub/datasets/o/n/main/README.md",
               "---\nconfigs:\n- config_name: all\n  data_files:\n"
               "  - split: train_sft\n    path: test.json\n"
               "  - split: train_gen\n    path: more.json\n"
               "  - split: validation\n    path: train.json\n---\n");
  const auto paths = [&](const std::string& config) {
    const DatasetFiles files =
        find_dataset_files({.dataset = "o/n", .config = config}, server.options());
    std::string text;
    for (const RemoteEntry& file : files.training) text += file.path + " ";
    text += "| ";
    for (const RemoteEntry& file : files.validation) text += file.path + " ";
    return text;
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(paths(""), "more.json test.json | train.json ");
  expect_contains(testing::internal::GetCapturedStderr(),
                  "all of several splits is training data: train_gen, train_sft; "
                  "--dataset_config_name train_gen reads one");
  EXPECT_EQ(paths("train_sft"), "test.json | ");
  EXPECT_EQ(paths("all"), paths(""));
}

TEST_F(DatasetFilesTest, OfACardTheSplitIsSaidThatIsLeftAlone) {
  LocalServer server;
  server.write("hub/datasets/o/n.json", R"({"revisions": ["main"]})");
  for (const char* name : {"a.json", "train.json"})
    server.write(cat("hub/datasets/o/n/main/", name), "{}");
  server.write("hub/datasets/o/n/main/README.md",
               "---\nconfigs:\n- config_name: all\n  data_files:\n"
               "  - split: train\n    path: a.json\n"
               "  - split: extra\n    path: train.json\n---\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(names(find_dataset_files({.dataset = "o/n"}, server.options()).training),
            Names{"a.json"});
  const std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log,
                  "1 file whose split in README.md says neither train nor validation is left "
                  "alone: '");
  expect_contains(log, "/train.json', of 'extra'");
}

// wikicorpus is one of the hub's oldest, which have no owner.
TEST_F(DatasetFilesTest, AConfigurationOnTheHub) {
  LocalServer server;
  for (const char* name : {"wikicorpus", "o/n"}) {
    server.write(cat("hub/datasets/", name, ".json"), R"({"revisions": ["main"]})");
    for (const char* config : {"raw_en", "raw_es"})
      server.write(cat("hub/datasets/", name, "/main/", config, "/train.parquet"), "PAR1");
    for (const char* before : {"", "hf://datasets/"}) {
      const DatasetFiles files =
          find_dataset_files({.dataset = cat(before, name), .config = "raw_es"}, server.options());
      ASSERT_EQ(files.training.size(), 1u);
      EXPECT_EQ(files.training[0].path, "raw_es/train.parquet");
    }
  }
  // A name that is no path of this machine, and not known without being asked for.
  expect_contains(user_error([&] {
                    find_dataset_files({.dataset = "wikitext", .config = "raw"}, server.options());
                  }),
                  "no such file or directory; a data set on the hub is given as "
                  "hf://datasets/wikitext");
}

TEST_F(DatasetFilesTest, APatternIsAllFilesThatMatch) {
  fill({"part-0.txt", "part-1.txt", "val.txt", "other.txt"});
  const std::string pattern = directory_ / "part-*.txt";
  EXPECT_EQ(names(find_dataset_files({.dataset = pattern}).training),
            (Names{"part-0.txt", "part-1.txt"}));
}

TEST_F(DatasetFilesTest, NamesDecideAmongTheFilesOfAPattern) {
  fill({"c4-train.0.txt", "c4-train.1.txt", "c4-validation.0.txt"});
  const DatasetFiles files = find_dataset_files({.dataset = directory_ / "c4-*.txt"});
  EXPECT_EQ(names(files.training), (Names{"c4-train.0.txt", "c4-train.1.txt"}));
  EXPECT_EQ(names(files.validation), Names{"c4-validation.0.txt"});
  const DatasetFiles asked = find_dataset_files({.dataset = directory_ / "c4-val*.txt"});
  EXPECT_EQ(names(asked.training), Names{"c4-validation.0.txt"});
  EXPECT_TRUE(asked.validation.empty());
}

TEST_F(DatasetFilesTest, DirectoriesThatAPatternMatchesAreReadWhereNoFileDoes) {
  for (const char* folder : {"part-0", "part-1", "validation"})
    make_directories(directory_ / folder);
  fill({"part-0/a.txt", "part-1/a.txt", "validation/a.txt"});
  const DatasetFiles files = find_dataset_files({.dataset = directory_ / "*"});
  ASSERT_EQ(files.training.size(), 2u);
  EXPECT_EQ(files.training[1].url, directory_ / "part-1/a.txt");
  EXPECT_EQ(files.validation[0].url, directory_ / "validation/a.txt");
  fill({"part-2.txt"});
  testing::internal::CaptureStderr();
  EXPECT_EQ(names(find_dataset_files({.dataset = directory_ / "part-*"}).training),
            Names{"part-2.txt"});
  expect_contains(testing::internal::GetCapturedStderr(),
                  cat("left out, the first: '", (directory_ / "part-0").string(), "'"));
}

TEST_F(DatasetFilesTest, WhatDescribesADataSetIsNoData) {
  fill({"README.md", "_SUCCESS", "dataset_infos.json", "part-0.txt"});
  directory_.write("_notes.txt", "");
  EXPECT_EQ(names(find().training), Names{"part-0.txt"});
  EXPECT_EQ(names(find_dataset_files({.training_dir = directory_.path()}).training),
            Names{"part-0.txt"});
  EXPECT_EQ(names(find_dataset_files({.dataset = directory_ / "*"}).training), Names{"part-0.txt"});
  // Unless there is nothing else, or it is named.
  EXPECT_EQ(names(find_dataset_files({.dataset = directory_ / "_*"}).training),
            (Names{"_SUCCESS", "_notes.txt"}));
  EXPECT_EQ(names(find_dataset_files({.dataset = directory_ / "README.md"}).training),
            Names{"README.md"});
}

// A key may begin with a slash behind the prefix.
TEST_F(DatasetFilesTest, FilesOfABucket) {
  LocalServer server;
  std::string listing = "<ListBucketResult><IsTruncated>false</IsTruncated>";
  for (const char* key : {"set//x.txt", "set/_SUCCESS", "set/validation/y.txt"})
    listing += cat("<Contents><Key>", key, "</Key><Size>5</Size></Contents>");
  server.write("files/bucket", listing + "</ListBucketResult>");
  RemoteOptions remote = server.options();
  remote.s3.endpoint = server.url("/files");
  const DatasetFiles files = find_dataset_files({.dataset = "s3://bucket/set/"}, remote);
  ASSERT_EQ(files.training.size(), 1u);
  EXPECT_EQ(files.training[0].url, "s3://bucket/set//x.txt");
  EXPECT_EQ(names(files.validation), Names{"y.txt"});
}

TEST_F(DatasetFilesTest, AConfigurationIsADirectory) {
  for (const char* folder : {"en", "de"}) make_directories(directory_ / folder);
  fill({"en/train.txt", "de/train.txt"});
  auto files = find_dataset_files({.dataset = directory_.path(), .config = "en"});
  EXPECT_EQ(names(files.training), Names{"train.txt"});
  EXPECT_EQ(files.training[0].url, directory_ / "en/train.txt");
  testing::internal::CaptureStderr();
  files = find_dataset_files({.dataset = directory_.path(), .config = "fr"});
  EXPECT_EQ(files.training.size(), 2u);
  expect_contains(testing::internal::GetCapturedStderr(), "--dataset_config_name fr");
}

TEST_F(DatasetFilesTest, FilesWithTheSuffixAloneWhereThereAreAny) {
  fill({"a.json.gz", "b.json", "c.json.gz"});
  EXPECT_EQ(
      names(find_dataset_files({.training_dir = directory_.path(), .suffix = ".json.gz"}).training),
      (Names{"a.json.gz", "c.json.gz"}));
  EXPECT_EQ(
      names(find_dataset_files({.training_dir = directory_.path(), .suffix = ".txt"}).training),
      (Names{"a.json.gz", "b.json", "c.json.gz"}));
}

TEST_F(DatasetFilesTest, RanksAreToldTheSame) {
  fill({"train-0.txt", "train-1.txt", "val.txt"});
  DatasetFiles files = find();
  files.training[1].sha256 = std::string(64, 'a');
  files.validation[0].url = "https://host/val.txt?x=1";
  const std::string text = to_text(files);
  const DatasetFiles told = dataset_files_from_text(text);
  EXPECT_EQ(to_text(told), text);
  EXPECT_EQ(names(told.training), names(files.training));
  EXPECT_EQ(told.training[1].sha256, files.training[1].sha256);
}

TEST_F(DatasetFilesTest, ASavedDataSetIsWhatItsDescriptionSays) {
  for (const char* folder : {"saved/train", "saved/validation"})
    make_directories(directory_ / folder);
  fill({"saved/train/data-00000-of-00001.arrow", "saved/validation/data-00000-of-00001.arrow",
        "saved/train/dataset_info.json"});
  directory_.write("saved/dataset_dict.json", R"({"splits": ["train", "validation"]})");
  for (const char* split : {"train", "validation"}) {
    directory_.write(cat("saved/", split, "/state.json"),
                     cat(R"({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], )",
                         R"("_split": ")", split, "\"}"));
  }
  for (const auto& place : {directory_.path(), directory_ / "saved"}) {
    auto files = find_dataset_files({.dataset = place});
    ASSERT_EQ(files.training.size(), 1u);
    EXPECT_EQ(files.training[0].url, directory_ / "saved/train/data-00000-of-00001.arrow");
    ASSERT_EQ(files.validation.size(), 1u);
    EXPECT_EQ(files.validation[0].url, directory_ / "saved/validation/data-00000-of-00001.arrow");
  }
}

TEST_F(DatasetFilesTest, TrainingAndTestDirectoriesTakeEveryFile) {
  ScratchDirectory test;
  fill({"val_a", "b"});
  test.write("train", "x");
  auto files = find_dataset_files({.training_dir = directory_.path(), .test_dir = test.path()});
  EXPECT_EQ(names(files.training), (Names{"b", "val_a"}));
  EXPECT_EQ(names(files.validation), Names{"train"});
  files = find_dataset_files({.dataset = directory_.path(), .test_dir = test.path()});
  EXPECT_EQ(names(files.training), Names{"b"});
  EXPECT_EQ(names(files.validation), Names{"train"});
  files = find_dataset_files({.test_dir = test.path()});
  EXPECT_TRUE(files.training.empty());
}

TEST_F(DatasetFilesTest, OfSeveralKindsOneIsReadHereAsOnTheHub) {
  LocalServer server;
  server.write("hub/datasets/o/n.json", R"({"revisions": ["main"]})");
  make_directories(directory_ / "data");
  const Names paths{"data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet",
                    "Tiny-train.txt", "Tiny-valid.txt"};
  fill(paths);
  for (const std::string& path : paths) server.write("hub/datasets/o/n/main/" + path, "text");
  for (const std::string& name : {directory_.path().string(), std::string("o/n")}) {
    testing::internal::CaptureStderr();
    const DatasetFiles files = find_dataset_files({.dataset = name}, server.options());
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(names(files.training), Names{"train-00000-of-00001.parquet"});
    EXPECT_EQ(names(files.validation), Names{"validation-00000-of-00001.parquet"});
    expect_contains(log, cat("'", name, "': its Parquet files are read, and "));
    expect_contains(log, "Tiny-train.txt'; ");
  }
  // A pattern asks for what it matches, and names that say no kind may be of any.
  EXPECT_EQ(names(find_dataset_files({.dataset = directory_ / "*.txt"}).training),
            Names{"Tiny-train.txt"});
  fill({"train"});
  EXPECT_EQ(names(find().training), (Names{"train-00000-of-00001.parquet", "train"}));
}

// As ultrachat_200k is.
TEST_F(DatasetFilesTest, SeveralSplitsOfTrainingDataAreNamed) {
  LocalServer server;
  server.write("hub/datasets/o/n.json", R"({"revisions": ["main"]})");
  for (const char* split : {"test_sft", "train_gen", "train_sft"}) {
    const std::string path = cat(split, "-00000-of-00001.parquet");
    fill({path});
    server.write("hub/datasets/o/n/main/data/" + path, "text");
  }
  for (const std::string& name : {directory_.path().string(), std::string("hf://datasets/o/n")}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(find_dataset_files({.dataset = name}, server.options()).training.size(), 2u);
    expect_contains(testing::internal::GetCapturedStderr(),
                    cat("'", name,
                        "': all of several splits is training data: train_gen, "
                        "train_sft; --dataset_config_name train_gen reads one"));
    testing::internal::CaptureStderr();
    const DatasetFiles one =
        find_dataset_files({.dataset = name, .config = "train_sft"}, server.options());
    EXPECT_EQ(names(one.training), Names{"train_sft-00000-of-00001.parquet"});
    EXPECT_TRUE(one.validation.empty());
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

TEST_F(DatasetFilesTest, ErrorsNameOptionAndPath) {
  expect_contains(user_error([] { find_dataset_files({}); }), "give --dataset PATH");
  expect_contains(user_error([] { find_dataset_files({.dataset = "a", .training_dir = "b"}); }),
                  "exclude each other");
  auto missing = directory_ / "missing";
  expect_contains(user_error([&] { find_dataset_files({.dataset = missing}); }),
                  cat("--dataset: cannot read '", missing.string(), "': there is no such file"));
  expect_contains(user_error([&] { find_dataset_files({.training_dir = missing}); }),
                  cat("--training_dir: cannot read '", missing.string(), "'"));
  // Relative ones too, which could be names on the hub but for what they are meant to be.
  expect_contains(user_error([] { find_dataset_files({.dataset = "gone/own.txt"}); }),
                  "--dataset: cannot read 'gone/own.txt': there is no such file");
  expect_contains(user_error([] { find_dataset_files({.training_dir = "gone/rows"}); }),
                  "--training_dir: cannot read 'gone/rows': there is no such file");
  expect_contains(user_error([] { find_dataset_files({.test_dir = "gone/rows"}); }),
                  "--test_dir: cannot read 'gone/rows': there is no such file");
  expect_contains(user_error([&] { find(); }), "--dataset: there is no file in");
  expect_contains(user_error([] { find_dataset_files({.dataset = "/dev/null"}); }), "neither");
  fill({"val.txt"});
  expect_contains(user_error([&] { find(); }), "validation files only");
  std::filesystem::create_symlink(missing, directory_ / "train.txt");
  expect_contains(user_error([&] { find(); }), "train.txt': the link leads nowhere");
}

TEST_F(DatasetFilesTest, UnreadableFileIsAnError) {
  auto file = directory_.write("train.txt", "x");
  std::filesystem::permissions(file, std::filesystem::perms::none);
  if (::access(file.c_str(), R_OK) == 0) GTEST_SKIP() << "this user may read everything";
  expect_contains(user_error([&] { find(); }), "train.txt': Permission denied");
}

}  // namespace
}  // namespace tessera
