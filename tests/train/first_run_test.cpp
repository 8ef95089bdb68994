#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset_files.h"
#include "options/model_options.h"
#include "options/option_table.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tokenizer/tokenizer.h"
#include "torch_files/pickle_writer.h"
#include "train/first_run_defaults.h"
#include "train/own_tokenizer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::string text_of_bytes(size_t bytes) {
  std::string text;
  for (uint64_t i = 0; text.size() < bytes; ++i) {
    const uint64_t length = 2 + random_below(1, 0, i, 7);
    for (uint64_t letter = 0; letter < length; ++letter)
      text +=
          static_cast<char>('a' + random_below(2, i, letter, 26) * random_below(3, i, letter, 2));
    text += i % 12 == 11 ? '\n' : ' ';
  }
  return text.substr(0, bytes);
}

class FirstRunTest : public testing::Test {
 protected:
  FirstRunTest() { directory_.write("own.txt", text_of_bytes(50'000)); }

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  ParsedOptions parse(std::vector<std::string> words,
                      OptionScope scope = OptionScope::kTrain) const {
    words.insert(words.end(), {"--cache_dir", path("cache")});
    return parse_options(words, scope, [](const char*) { return std::nullopt; });
  }
  ParsedOptions chosen(const std::vector<std::string>& words, int64_t ranks = 1) const {
    ParsedOptions parsed = parse(words);
    choose_for_text(parsed, {.ranks = ranks});
    return parsed;
  }
  ParsedOptions chosen_for(const std::string& file) const {
    return chosen({"--dataset", path(file)});
  }
  // Nothing is chosen.
  void expect_kept(const std::vector<std::string>& words) const {
    const ParsedOptions before = parse(words), after = chosen(words);
    EXPECT_TRUE(before.config == after.config) << join(words, " ");
    EXPECT_EQ(before.given, after.given);
    EXPECT_EQ(after.notes, before.notes);
  }

  ScratchDirectory directory_;
};

TEST_F(FirstRunTest, ALineOfTheLogHasOptionsThatMakeTheSameRun) {
  ParsedOptions parsed = chosen_for("own.txt");
  const std::string& note = parsed.notes.at(0);
  expect_contains(note,
                  "Neither model nor tokenizer is given: chosen for 50.00 KB of text, as if by --");
  EXPECT_EQ(note.find('\n'), std::string::npos);
  std::vector<std::string> words{"--dataset", path("own.txt")};
  const std::string said = note.substr(note.find("--"));
  for (std::string_view word : split(said, ' ')) words.emplace_back(word);
  ParsedOptions again = parse(words);
  EXPECT_TRUE(again.config == parsed.config);
  EXPECT_TRUE(resolve_model(again) == resolve_model(parsed));
  // What is given is not chosen.
  expect_kept(words);
  expect_contains(parsed.notes.at(1), "--checkpoint_dir");
}

TEST_F(FirstRunTest, WhoeverNamesModelOrTokenizerKeepsAllDefaults) {
  const std::string text = path("own.txt");
  expect_kept({"--dataset", text, "--tokenizer", "byte"});
  expect_kept({"--dataset", text, "--model_type", "llama_v2"});
  expect_kept({"--dataset", text, "--model_name", "gpt2"});
  expect_kept({"--dataset", text, "--hidden_width", "64", "--num_heads", "4"});
  expect_kept({"--dataset", text, "--vocab_size", "50432"});
  expect_kept({"--dataset", text, "--model_config", "config.json"});
  expect_kept({"--dataset", text, "--use_synthetic_data", "1"});
  expect_kept({});
  expect_kept({"--dataset", path("none.txt")});
  expect_kept({"--dataset", "org/name"});
}

TEST_F(FirstRunTest, APlanSaysThatTheTextIsNotHere) {
  auto warnings = [&](const std::vector<std::string>& words, OptionScope scope) {
    ParsedOptions parsed = parse(words, scope);
    choose_for_text(parsed, {});
    return parsed.warnings;
  };
  const std::vector<std::string> missing{"--dataset", path("none.txt")};
  for (OptionScope scope : {OptionScope::kPlan, OptionScope::kExplain}) {
    const auto said = warnings(missing, scope);
    ASSERT_EQ(said.size(), 1U);
    expect_contains(said[0], "none.txt' is not on this machine: no model is chosen for its text");
    EXPECT_TRUE(warnings({"--dataset", "org/name"}, scope).empty());
    EXPECT_TRUE(warnings({"--dataset", path("none.txt"), "--num_layers", "2"}, scope).empty());
  }
  EXPECT_TRUE(warnings(missing, OptionScope::kTrain).empty());  // it ends there, with an error
}

TEST_F(FirstRunTest, IdsAndConversationsAreNoText) {
  directory_.write("ids.bin", std::string(4000, '\1'));
  directory_.write("rows.jsonl", R"({"input_ids": [1, 2]})");
  directory_.write("chats.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})");
  for (const char* file : {"ids.bin", "rows.jsonl", "chats.jsonl"})
    expect_kept({"--dataset", path(file)});
}

TEST_F(FirstRunTest, IdsHaveTheVocabularyThatLiesBesideThem) {
  for (auto [set, size] : {std::pair{"shake", 400}, {"other", 300}}) {
    make_directories(directory_ / "data" / set);
    directory_.write(cat("data/", set, "/train.bin"), std::string(4000, '\1'));
    std::string meta;
    PickleWriter writer([&](std::string_view bytes) { meta += bytes; });
    writer.empty_dict();
    writer.mark();
    writer.name("vocab_size");
    writer.integer(size);
    writer.set_items();
    writer.finish();
    directory_.write(cat("data/", set, "/meta.pkl"), meta);
  }
  auto taken = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--dataset_dir", path("data")});
    ParsedOptions parsed = parse(words);
    take_vocabulary(parsed);
    return parsed;
  };
  const std::vector<std::string> by_name{"--dataset", "shake"};
  for (const auto& words : {by_name,
                            {"--dataset", path("data/shake")},
                            {"--dataset", path("data/shake/train.bin")},
                            {"--dataset_mix", "other=1", "shake=1"}}) {
    ParsedOptions parsed = taken(words);
    EXPECT_EQ(resolve_model(parsed).vocab_size, 400) << join(words, " ");
    expect_contains(parsed.notes.at(0), "vocabulary: 400 ids, as '");
    EXPECT_TRUE(parsed.warnings.empty());
  }
  auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), by_name.begin(), by_name.end());
    return words;
  };
  ParsedOptions preset = taken(with({"--model_name", "gpt2"}));
  EXPECT_EQ(resolve_model(preset).vocab_size, 400);
  EXPECT_EQ(taken(with({"--vocab_size", "512"})).config.vocab_size, 512);
  const std::string message = user_error([&] { taken(with({"--vocab_size", "399"})); });
  expect_contains(message, "--vocab_size 399 is smaller");
  expect_contains(message, cat("400 ids that '", path("data/shake/meta.pkl"), "'"));
  // A configuration has its own.
  EXPECT_FALSE(taken(with({"--hf_model", "gpt2"})).is_given("vocab_size"));
  directory_.write("data/shake/meta.pkl",
                   "\x80\x02"
                   "cposix\nsystem\n.");
  ParsedOptions unread = taken(by_name);
  EXPECT_FALSE(unread.is_given("vocab_size"));
  expect_contains(unread.warnings.at(0), "meta.pkl' asks for the Python object 'posix.system'");
}

TEST_F(FirstRunTest, GivenOptionsWin) {
  ParsedOptions parsed =
      chosen({"--dataset", path("own.txt"), "--lr", "0.5", "--max_steps", "7", "--batch_size", "2",
              "--max_context_width", "32", "--weight_decay", "0", "--epochs", "3"});
  const RunConfig& c = parsed.config;
  EXPECT_EQ(c.lr, 0.5);
  EXPECT_EQ(c.min_lr, 0.05);
  EXPECT_EQ(c.max_steps, 7);
  EXPECT_EQ(c.train_batch_size, 2);
  EXPECT_EQ(c.max_context_width, 32);
  EXPECT_EQ(c.weight_decay, 0);
  EXPECT_EQ(c.epochs, 3);
  EXPECT_EQ(resolve_model(parsed).max_context_width, 32);
  EXPECT_EQ(parsed.notes.at(0).find("--lr "), std::string::npos);
  // Epochs that are given end the run.
  const double windows = 50'000 / 1.85 / 32;
  EXPECT_GT(static_cast<double>(
                chosen({"--dataset", path("own.txt"), "--epochs", "3", "--max_context_width", "32"})
                    .config.max_steps),
            3 * windows / 8);
}

TEST_F(FirstRunTest, RanksShareTheBatch) {
  const RunConfig one = chosen_for("own.txt").config;
  for (int64_t ranks : {2, 4, 8}) {
    const RunConfig c = chosen({"--dataset", path("own.txt")}, ranks).config;
    EXPECT_EQ(c.train_batch_size * ranks, one.train_batch_size);
    EXPECT_EQ(c.max_steps, one.max_steps);
  }
  const RunConfig many = chosen({"--dataset", path("own.txt")}, 32).config;
  EXPECT_EQ(many.train_batch_size, 1);
  EXPECT_LT(many.max_steps, one.max_steps);
}

TEST_F(FirstRunTest, TheTextCountsNotItsFile) {
  const std::string text = text_of_bytes(400'000);
  directory_.write("plain.txt", text);
  gzFile file = gzopen(path("packed.txt").c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  std::string rows;
  for (std::string_view line : split(std::string_view(text), '\n'))
    rows += cat(R"({"id": "12345678901234567890", "text": ")", line, "\"}\n");
  directory_.write("rows.jsonl", rows);
  const RunConfig plain = chosen_for("plain.txt").config;
  EXPECT_NE(plain.hidden_width, chosen_for("own.txt").config.hidden_width);
  RunConfig packed = chosen_for("packed.txt").config;
  EXPECT_NE(packed.tokenizer, plain.tokenizer);
  packed.dataset = plain.dataset;
  packed.tokenizer = plain.tokenizer;
  EXPECT_TRUE(packed == plain);
  const RunConfig json = chosen_for("rows.jsonl").config;  // some line ends less
  EXPECT_EQ(json.hidden_width, plain.hidden_width);
  EXPECT_NEAR(static_cast<double>(json.max_steps), static_cast<double>(plain.max_steps),
              static_cast<double>(plain.max_steps) / 20);
}

TEST_F(FirstRunTest, ShapesGrowWithTheText) {
  int64_t vocabulary = 0, width = 0;
  for (int64_t bytes = 1; bytes < INT64_MAX / 4; bytes *= 4) {
    const FirstRunShape& shape = first_run_shape(bytes);
    EXPECT_GE(shape.vocab_size, vocabulary);
    EXPECT_GE(shape.hidden_width, width);
    EXPECT_EQ(shape.hidden_width % shape.num_heads, 0);
    EXPECT_EQ(shape.num_heads % shape.num_key_value_heads, 0);
    vocabulary = shape.vocab_size;
    width = shape.hidden_width;
  }
  // A few words are enough to begin with.
  directory_.write("tiny.txt", text_of_bytes(600));
  const RunConfig c = chosen_for("tiny.txt").config;
  EXPECT_EQ(c.max_context_width, 16);
  EXPECT_EQ(c.max_steps, 20);
}

TEST_F(FirstRunTest, WhatCannotBeReadIsAnError) {
  directory_.write("bin.txt", std::string("abc\0def", 7));
  expect_contains(user_error([&] { chosen_for("bin.txt"); }), "looks binary");
  directory_.write("bad.jsonl", "{\"text\": 1}\n");
  expect_contains(user_error([&] { chosen_for("bad.jsonl"); }), "line 1");
  fs::create_directory(directory_ / "empty");
  expect_contains(user_error([&] { chosen_for("empty"); }), "empty");
}

TEST_F(FirstRunTest, ATokenizerIsMadeOnceForATextAndASize) {
  RunConfig c = chosen_for("own.txt").config;
  EXPECT_TRUE(is_own_tokenizer(c));
  EXPECT_FALSE(fs::exists(c.tokenizer));
  make_own_tokenizer(c, 2);
  const auto tokenizer = load_tokenizer(c.tokenizer);
  EXPECT_EQ(tokenizer->vocab_size(), c.vocab_size);
  const auto made = fs::last_write_time(c.tokenizer);
  make_own_tokenizer(c, 1);
  EXPECT_EQ(fs::last_write_time(c.tokenizer), made);
  // A damaged one is made again, the same.
  const std::string content = read_file(c.tokenizer);
  directory_.write(fs::path("cache") / fs::path(c.tokenizer).filename(), "{");
  make_own_tokenizer(c, 1);
  EXPECT_EQ(read_file(c.tokenizer), content);
  EXPECT_EQ(chosen_for("own.txt").config.tokenizer, c.tokenizer);

  RunConfig other = c;
  other.vocab_size = 400;
  const auto files = local_entries(std::vector<fs::path>{path("own.txt")});
  EXPECT_NE(own_tokenizer_path(other, files), c.tokenizer);
  directory_.write("own.txt", text_of_bytes(60'000));
  EXPECT_NE(chosen_for("own.txt").config.tokenizer, c.tokenizer);
  fs::remove(c.tokenizer);
  expect_contains(user_error([&] { make_own_tokenizer(c, 1); }),
                  "is not the text that it was made of");
  // Others are none of its business.
  c.tokenizer = "byte";
  make_own_tokenizer(c, 1);
  c.tokenizer = path("tokenizer.json");
  make_own_tokenizer(c, 1);
  EXPECT_FALSE(fs::exists(c.tokenizer));
}

TEST_F(FirstRunTest, ATokenizerIsMadeOfAllFiles) {
  const std::string letters = "abc";
  fs::create_directory(directory_ / "texts");
  for (char letter : letters) {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += cat("x", letter, "x", letter, "x ");
    directory_.write(cat("texts/", letter, ".txt"), text);
  }
  const RunConfig c = chosen_for("texts").config;
  make_own_tokenizer(c, 1);
  const auto tokenizer = load_tokenizer(c.tokenizer);
  for (char letter : letters) {
    std::vector<int32_t> ids;
    tokenizer->encode(cat(" x", letter, "x", letter, "x"), ids);
    EXPECT_EQ(ids.size(), 1u) << letter;
  }
}

}  // namespace
}  // namespace tessera
