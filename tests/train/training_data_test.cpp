#include "train/training_data.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

const std::string kGoldens = TESSERA_SOURCE_DIR "/tests/tokenizer/goldens/";

class TrainingDataTest : public testing::Test {
 protected:
  TrainingDataTest() {
    config_.dataset = (folder_ / "text.txt").string();
    config_.cache_dir = (folder_ / "cache").string();
    config_.validation_fraction = 0;
  }

  // Text and names of special tokens as they stand in the packed data.
  std::string packed(const std::string& text, const std::string& tokenizer, int64_t vocab_size) {
    write_file_atomic(config_.dataset, text);
    config_.tokenizer = kGoldens + tokenizer;
    ThreadPool pool(1);
    TrainingData data =
        prepare_training_data(config_, find_data_sources(config_), nullptr, vocab_size, 4, pool);
    std::vector<int32_t> ids(static_cast<size_t>(data.parts.at(0).tokens.count()));
    data.parts.at(0).tokens.copy(0, ids);
    special_ = 0;
    for (int32_t id : ids) {
      special_ += id == data.tokenizer->end_of_text();
      for (int32_t before : data.tokenizer->document_prefix()) special_ += id == before;
    }
    return data.tokenizer->decode(ids);
  }

  ScratchDirectory folder_;
  RunConfig config_;
  int special_ = 0;  // ids around documents
  std::string log_;
};

TEST_F(TrainingDataTest, DocumentsStandBetweenTheSpecialTokensOfTheTokenizer) {
  const std::string text = "one\n<|endoftext|>\ntwo <|end_of_text|> <|begin_of_text|>\n";
  EXPECT_EQ(packed(text, "llama3.json", 705),
            "<|begin_of_text|>one\n<|end_of_text|>"
            "<|begin_of_text|>two <|end_of_text|> <|begin_of_text|>\n<|end_of_text|>");
  EXPECT_EQ(special_, 4);  // what the text calls so are other ids
  EXPECT_EQ(packed(text, "neox.json", 723),
            "one\n<|endoftext|>two <|end_of_text|> <|begin_of_text|>\n<|endoftext|>");
  EXPECT_EQ(special_, 2);
}

TEST_F(TrainingDataTest, ATokenizerThatDoesNotFitTheVocabularyIsAnError) {
  expect_contains(user_error([&] { packed("text", "llama3.json", 703); }), "--vocab_size 705");
  // The last of its special tokens is in no text.
  EXPECT_EQ(packed("text", "llama3.json", 704), "<|begin_of_text|>text<|end_of_text|>");
}

TEST_F(TrainingDataTest, FastValidationReadsTheLastOfSeveralFiles) {
  auto folder = folder_ / "held_out";
  std::filesystem::create_directory(folder);
  for (int i : {0, 1, 2})
    write_file_atomic(folder / cat("part", i, ".txt"),
                      std::string(static_cast<size_t>(10 + i), 'x'));
  write_file_atomic(config_.dataset, "some text to train on\n");
  config_.validation_dataset = folder.string();
  config_.tokenizer = "byte";
  ThreadPool pool(1);
  auto held_out = [&] {
    testing::internal::CaptureStderr();
    int64_t count =
        prepare_training_data(config_, find_data_sources(config_), nullptr, 257, 4, pool)
            .validation.tokens.count();
    log_ = testing::internal::GetCapturedStderr();
    return count;
  };
  EXPECT_EQ(held_out(), 12 + 1);  // and the end of the text
  expect_contains(log_, "part2.txt', the last of 3 files; --fast_validation 0 takes all");
  config_.fast_validation = false;
  EXPECT_EQ(held_out(), 10 + 11 + 12 + 3);
  config_.fast_validation = true;
  config_.validation_dataset = (folder / "part0.txt").string();
  EXPECT_EQ(held_out(), 10 + 1);
  expect_lacks(log_, "fast_validation");
}

TEST_F(TrainingDataTest, AStreamHoldsOutAllOfItsShareOfSmallFiles) {
  auto folder = folder_ / "many";
  std::filesystem::create_directory(folder);
  for (int i = 0; i < 40; ++i) write_file_atomic(folder / cat(100 + i, ".txt"), "12345");
  config_.dataset = folder.string();
  config_.tokenizer = "byte";
  config_.streaming = "on";
  config_.validation_fraction = 0.1;
  ThreadPool pool(1);
  auto prepared = [&](int64_t context) {
    return prepare_training_data(config_, find_data_sources(config_), nullptr, 257, context, pool);
  };
  EXPECT_EQ(prepared(16).validation.tokens.count(), 4 * (5 + 1));
  expect_contains(user_error([&] { prepared(64); }), "many' (its validation data) has 24 tokens");
}

TEST_F(TrainingDataTest, PreparedDataAreFoundBelowADirectory) {
  auto prepare = [&](const std::filesystem::path& directory) {
    make_directories(directory);
    write_file_atomic(directory / "manifest.json", R"({"format": "tessera prepared data"})");
    return directory.string();
  };
  const auto top = folder_ / "fsx";
  make_directories(top / "logs");
  config_.dataset = config_.validation_dataset = top.string();
  prepare(top / ".cache/hidden");
  const std::string first = prepare(top / "data/sets/a");
  testing::internal::CaptureStderr();
  const DataSource source = find_data_sources(config_).at(0);
  log_ = testing::internal::GetCapturedStderr();
  EXPECT_EQ(source.prepared, first);
  EXPECT_EQ(source.prepared_validation, first);
  expect_contains(log_, cat("'", first, "' is prepared data: it is what is read of '"));
  const std::string second = prepare(top / "data/sets/b");
  expect_contains(user_error([&] { find_data_sources(config_); }),
                  cat("holds 2 prepared data sets, '", first, "' and '", second, "' the first"));
  config_.dataset = config_.validation_dataset = second;
  EXPECT_EQ(find_data_sources(config_).at(0).prepared, second);
}

TEST_F(TrainingDataTest, ADirectoryThatIsNotThereIsNoNameOnTheHub) {
  config_.dataset = "gone/rows";
  EXPECT_TRUE(names_are_remote(config_));
  for (auto option : {&RunConfig::training_dir, &RunConfig::test_dir}) {
    RunConfig config = config_;
    config.dataset = (folder_ / "text.txt").string();
    config.*option = "gone/rows";
    EXPECT_FALSE(names_are_remote(config));
    config.*option = "s3://bucket/rows/";
    EXPECT_TRUE(names_are_remote(config));
  }
}

}  // namespace
}  // namespace tessera
