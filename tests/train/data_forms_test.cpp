// Training on data of every form, and on streams of it.

#include "tests/remote/local_server.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

class DataFormsTest : public TrainingTest {
 protected:
  // The lines of a text as JSON lines.
  void write_json_lines(const std::string& file, const std::string& text,
                        const std::string& key = "text") const {
    std::string lines;
    for (std::string_view line : split(text, '\n'))
      if (!line.empty()) lines += nlohmann::json{{key, line}}.dump() + "\n";
    write(file, lines);
  }
  // The same lines as one text.
  void write_documents(const std::string& file, const std::string& text) const {
    std::string documents;
    for (std::string_view line : split(text, '\n'))
      if (!line.empty()) documents += cat(line, "<|endoftext|>");
    write(file, documents);
  }
  void write_conversations(const std::string& file, const char* answers = "assistant") const {
    std::string lines;
    for (int i = 0; i < 20; ++i) {
      lines += nlohmann::json{{"messages",
                               {{{"role", "user"}, {"content", "ab"}},
                                {{"role", answers}, {"content", "cd"}}}}}
                   .dump() +
               "\n";
    }
    write(file, lines);
  }
  RunConfig on(const std::string& dataset, int64_t steps = 4) const {
    RunConfig c = options(steps);
    c.dataset = path(dataset);
    c.checkpoint_dir.clear();
    c.validation_fraction = 0;
    return c;
  }
  void write_stream() const {
    std::filesystem::create_directories(path("stream"));
    for (int i = 0; i < 5; ++i)
      write_json_lines(cat("stream/train-", i, ".jsonl"),
                       made_up_text(400, static_cast<uint64_t>(i + 10)));
    write_json_lines("stream/validation.jsonl", made_up_text(100, 99));
  }
  RunConfig streaming(int64_t steps) const {
    RunConfig c = options(steps);
    c.dataset = path("stream");
    c.streaming = "on";
    c.data_lanes = 6;
    c.shuffle_buffer = 18;
    return c;
  }
};

TEST_F(DataFormsTest, AnotherKeyOfJsonIsTheSameText) {
  write_json_lines("a.jsonl", made_up_text(300));
  write_json_lines("b.jsonl", made_up_text(300), "content");
  RunTrace a = train(on("a.jsonl"));
  RunConfig config = on("b.jsonl");
  config.text_field = "content";
  EXPECT_EQ(train(config).losses, a.losses);
  config.text_field = "body";
  expect_contains(failure(config), "there is no key \"body\"");
}

TEST_F(DataFormsTest, RowsOfIdsAreSamples) {
  std::filesystem::create_directories(path("rows"));
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    std::vector<int> ids(static_cast<size_t>(8 + i)), mask(ids.size(), 1);
    for (size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<int>(t) * 7 + i;
    rows += nlohmann::json{{"input_ids", ids}, {"attention_mask", mask}}.dump() + "\n";
  }
  write("rows/b.json", rows);
  write("rows/c.txt", "not this");
  RunConfig config = options(3);
  config.training_dir = path("rows");
  config.zipped_data = false;
  config.tokenizer = "nowhere";  // ids need none
  RunTrace trace = train(config);
  EXPECT_EQ(trace.losses.size(), 3u);
  // A row of n ids has n - 1 targets, of longer ones than 17 15 in a window of 16: one epoch.
  int64_t targets = 0;
  for (int n = 8; n < 20; ++n) targets += n > 17 ? 15 : n - 1;
  EXPECT_EQ(trace.tokens_seen, targets);
  expect_contains(trace.log, "rows are shorter than the context of 16 tokens");
}

// A cache that was made for a larger vocabulary is not taken: the id would be found by the model.
TEST_F(DataFormsTest, AnIdBehindTheVocabularyIsFoundWhateverIsInTheCache) {
  write("rows.jsonl", R"({"input_ids": [1, 2, 256, 4, 5]})" + std::string("\n"));
  RunConfig config = on("rows.jsonl", 1);
  config.tokenizer = "nowhere";
  train(config);
  ModelConfig smaller = tiny_model();
  smaller.vocab_size = 256;
  expect_contains(failure(config, smaller), "input_ids[2] is 256, ids are 0 to 255");
}

TEST_F(DataFormsTest, ASavedDataSetOfRowsIsRead) {
  std::filesystem::create_directories(path("saved"));
  std::filesystem::copy(TESSERA_SOURCE_DIR "/tests/goldens/tables/rows.arrow",
                        path("saved/a.arrow"));
  write("saved/state.json", R"({"_data_files": [{"filename": "a.arrow"}], "_split": null})");
  write("saved/dataset_info.json", "{}");
  RunConfig config = on("saved", 6);
  config.epochs = 1;
  config.max_context_width = 20;
  config.tokenizer = "nowhere";
  RunTrace trace = train(config);
  // Of 20, 19 or 18 ids the first is no target, nor are the next four.
  EXPECT_EQ(trace.tokens_seen, 8 * (15 + 14 + 13));
  // The same below another directory.
  std::filesystem::create_directories(path("outer"));
  std::filesystem::rename(path("saved"), path("outer/saved"));
  config.dataset = path("outer");
  EXPECT_EQ(train(config).losses, trace.losses);
  // And as a stream.
  config.streaming = "on";
  config.data_lanes = 3;
  EXPECT_EQ(train(config).tokens_seen, trace.tokens_seen);
}

TEST_F(DataFormsTest, OfConversationsAnswersAreLearned) {
  write_conversations("chat.jsonl");
  RunConfig config = on("chat.jsonl", 2);
  config.max_context_width = 64;
  config.chat_template = "plain";
  RunTrace rows = train(config);
  // The answer, and the token that ends it.
  EXPECT_GT(rows.tokens_seen, 0);
  EXPECT_LE(rows.tokens_seen, 8 * 16);
  config.packing = "best_fit";
  RunTrace packed = train(config);
  EXPECT_GT(packed.tokens_seen, rows.tokens_seen);
  config.chat_template.clear();
  expect_contains(failure(config), "chat template");
}

TEST_F(DataFormsTest, DataOfWhichNothingIsLearnedIsAnError) {
  write_conversations("chat.jsonl", "model");
  RunConfig config = on("chat.jsonl", 5);
  config.max_context_width = 64;
  config.chat_template = "chatml";
  config.run_validation = false;
  for (const char* run : {"tokenized", "from the cache"}) {
    SCOPED_TRACE(run);
    expect_contains(failure(config),
                    cat("'", config.dataset, "' holds no token that is learned. Of conversations ",
                        "the messages of the role 'assistant' are learned; these have the roles ",
                        "'user', 'model': rename that of the answers. tessera data inspect"));
  }
  // A stream is known when it is read.
  config.streaming = "on";
  config.data_lanes = 2;
  config.epochs = 3;
  expect_contains(failure(config), "chat.jsonl' is empty. Of conversations the messages of");
  const auto warnings = lines_with(log(), "No token of the stream was learned yet. Of conver");
  ASSERT_EQ(warnings.size(), 1u) << log();
  expect_contains(warnings[0], "the roles 'user', 'model'");

  // So is a mix, which has no end.
  std::filesystem::copy(path("chat.jsonl"), path("chats.jsonl"));
  config.dataset_mix = {path("chat.jsonl") + "=3", path("chats.jsonl") + "=1"};
  expect_contains(failure(config), "chats.jsonl' is empty. Of conversations the messages of");
  config.dataset_mix.clear();

  // A part of a mix, and rows whose labels are none.
  write("rows.jsonl", R"({"input_ids": [1, 2, 3], "labels": [-100, -100, -100]})"
                      "\n");
  write_json_lines("a.jsonl", made_up_text(300));
  config.streaming = "off";
  config.dataset_mix = {path("a.jsonl") + "=3", path("rows.jsonl") + "=1"};
  expect_contains(failure(config), "rows.jsonl' holds no token that is learned. tessera data");

  // What is learned is in no window: nothing predicts the first token of a row.
  write("rows.jsonl", R"({"input_ids": [1, 2, 3], "labels": [1, -100, -100]})"
                      "\n");
  config = on("rows.jsonl", 5);
  const RunTrace cut = train(config);
  EXPECT_EQ(cut.tokens_seen, 0);
  const auto said = lines_with(cut.log, "No token was learned");
  ASSERT_EQ(said.size(), 1u) << cut.log;
  expect_contains(said[0], "in the first 3 steps: tessera data inspect");
  // There is no loss, as of what is validated on.
  expect_contains(read_file(path("metrics")), "\"loss\":null");
  config.validation_dataset = path("rows.jsonl");
  config.validation_freq = 2;
  const RunTrace validated = train(config);
  EXPECT_EQ(lines_with(validated.log, "Validation loss").size(), 0u);
  EXPECT_EQ(lines_with(validated.log, "There is no validation loss: of the").size(), 1u);
  expect_contains(read_file(path("metrics")),
                  "\"validation_loss\":null,\"validation_perplexity\":null");
  config.eval_only = true;
  expect_contains(failure(config), "--eval_only: there is no loss: of the validation data no");
}

TEST_F(DataFormsTest, AMixNamesItsParts) {
  write_json_lines("a.jsonl", made_up_text(300));
  write_json_lines("b.jsonl", made_up_text(300, 5));
  RunConfig config = on("a.jsonl");
  config.dataset_mix = {path("a.jsonl") + "=3", path("b.jsonl") + "=1"};
  RunTrace mix = train(config);
  EXPECT_EQ(mix.losses.size(), 4u);
  EXPECT_NE(mix.losses, train(on("a.jsonl")).losses);
  config.dataset_mix = {path("a.jsonl")};
  try {
    train(config);
    FAIL() << "a part without a weight was taken";
  } catch (const UsageError& error) {
    expect_contains(error.what(), "NAME=WEIGHT");
  }
}

TEST_F(DataFormsTest, WhatIsRecordedHoldsNoSecretsOfAddresses) {
  LocalServer server;
  server.write("files/text.txt", made_up_text(300));
  auto with_key = [&](const std::string& key) {
    std::string url = server.url(cat("/files/text.txt?plan=ok&key=", key));
    return url.insert(7, cat("bob:", key, "@"));
  };
  RunConfig config = options(2);
  config.dataset = with_key("TOPSECRET");
  config.tensorboard_dir = {path("events")};
  const std::string said = train(config).log;
  expect_lacks(said, "TOPSECRET");
  int files = 0;
  for (const char* folder : {"ckpt", "events"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(folder))) {
      if (!entry.is_regular_file()) continue;
      ++files;
      expect_lacks(read_file(entry.path()), "TOPSECRET");
    }
  }
  EXPECT_GT(files, 3);
  // Another signature of the same address is no other data.
  config.dataset = with_key("ANOTHER");
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.max_steps = 4;
  const RunTrace resumed = train(config);
  EXPECT_EQ(resumed.steps, 4);
  expect_lacks(resumed.log, "--dataset was");
}

TEST_F(DataFormsTest, MaxDatasetLenKeepsTheFirstWindows) {
  RunConfig config = on("text.txt");
  config.max_dataset_len = 8;
  expect_contains(train(config).log, "Training on 8 windows");
}

TEST_F(DataFormsTest, AStreamResumesToTheBit) {
  write_stream();
  RunTrace whole = train(streaming(9));
  ASSERT_EQ(whole.losses.size(), 9u);
  expect_contains(whole.log, "Training on a stream of 5 files");
  RunConfig config = streaming(4);
  config.checkpoint_dir = {path("parts")};
  RunTrace first = train(config);
  config.resume_from_checkpoint = {path("parts")};
  config.max_steps = 6;
  config.on_bad_line = "skip";  // as behind a broken line
  RunTrace second = train(config);
  config.on_bad_line = "error";
  config.max_steps = 9;
  RunTrace third = train(config);
  std::vector<std::string> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  losses.insert(losses.end(), third.losses.begin(), third.losses.end());
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(third.fingerprint, whole.fingerprint);
  // Threads change nothing.
  config = streaming(9);
  config.data_num_workers = 1;
  config.checkpoint_dir = {path("one_thread")};
  EXPECT_EQ(train(config).fingerprint, whole.fingerprint);
}

TEST_F(DataFormsTest, AStreamOfOtherFilesBeginsAnewWithAWarning) {
  write_stream();
  train(streaming(3));
  write_json_lines("stream/train-5.jsonl", made_up_text(400, 77));
  RunConfig config = streaming(5);
  config.resume_from_checkpoint = {path("ckpt")};
  RunTrace trace = train(config);
  EXPECT_EQ(trace.losses.size(), 2u);
  expect_contains(trace.log, "does not say where it was in this stream");
}

TEST_F(DataFormsTest, AStreamEndsWithItsEpochs) {
  write_stream();
  RunConfig config = streaming(100'000);
  config.epochs = 2;
  config.logging_freq = 100'000;
  RunTrace trace = train(config);
  expect_contains(trace.log, "The data has ended after 2 epochs");
  expect_contains(trace.log,
                  cat("Batch ", trace.losses.size() - 1, " Loss: "));  // the last is told
  ASSERT_FALSE(trace.epochs.empty());
  EXPECT_EQ(trace.epochs.front(), 1);
  EXPECT_EQ(trace.epochs.back(), 2);
  EXPECT_LT(trace.losses.size(), 2000u);
  for (bool ok : trace.ok) EXPECT_TRUE(ok);
  // Each token but the first of each lane, twice.
  int64_t bytes = 0;
  for (int i = 0; i < 5; ++i) {
    for (std::string_view line : split(made_up_text(400, static_cast<uint64_t>(i + 10)), '\n'))
      if (!line.empty()) bytes += std::ssize(line) + 1;
  }
  EXPECT_EQ(trace.tokens_seen, 2 * bytes - 6);
}

TEST_F(DataFormsTest, MoreEpochsGoOnWhereTheDataHadEnded) {
  write_stream();
  for (const char* streaming_is : {"on", "off"}) {
    RunConfig config = streaming(100'000);
    config.streaming = streaming_is;
    config.packing = "rows";
    config.train_batch_size = 7;  // the last step has fewer
    config.epochs = 2;
    config.checkpoint_dir = {path(cat(streaming_is, "_whole"))};
    RunTrace whole = train(config);
    config.epochs = 1;
    config.checkpoint_dir = {path(cat(streaming_is, "_parts"))};
    RunTrace first = train(config);
    config.epochs = 2;
    config.resume_from_checkpoint = config.checkpoint_dir;
    RunTrace second = train(config);
    EXPECT_EQ(whole.tokens_seen, 2 * first.tokens_seen) << streaming_is;
    EXPECT_EQ(second.tokens_seen, whole.tokens_seen) << streaming_is;
  }
}

TEST_F(DataFormsTest, AnotherStreamBeginsAnewWithOneWarning) {
  write_stream();
  train(streaming(2));
  for (bool other_files : {false, true}) {
    RunConfig config = streaming(3);
    config.checkpoint_dir = {path(cat("other_", other_files))};
    config.resume_from_checkpoint = {path("ckpt")};
    if (other_files)
      std::filesystem::remove(path("stream/train-4.jsonl"));
    else
      config.data_lanes = 3;
    const std::string log = train(config).log;
    expect_contains(log, cat("llama_v2-2steps' does not say where it was in this stream (",
                             other_files ? "the files of --dataset have changed" : "--data_lanes"));
    expect_contains(log, ": the data begins anew");
    expect_lacks(log, "the training text is not that of the checkpoint");
  }
}

TEST_F(DataFormsTest, AStreamInAnotherChatTemplateBeginsAnew) {
  write_conversations("chat.jsonl");
  RunConfig config = streaming(1);
  config.dataset = path("chat.jsonl");
  config.max_context_width = 64;
  config.epochs = 9;
  config.chat_template = "plain";
  train(config);
  config.resume_from_checkpoint = config.checkpoint_dir;
  config.max_steps = 2;
  expect_lacks(train(config).log, "does not say where it was in this stream");
  config.max_steps = 3;
  config.chat_template = "chatml";
  expect_contains(train(config).log, "does not say where it was in this stream (--chat_template");
}

TEST_F(DataFormsTest, AStreamWithoutTokensIsAnError) {
  std::filesystem::create_directories(path("nothing"));
  write("nothing/a.jsonl", "");
  write("nothing/b.jsonl", "{\"text\": \"\"}\n{\"other\": 1}\n{\"other\": 2}\n");
  RunConfig config = on("nothing");
  config.streaming = "on";
  config.on_bad_line = "skip";
  expect_contains(failure(config), cat("data set '", path("nothing"), "' is empty"));
  EXPECT_EQ(lines_with(log(), "skipping broken lines").size(), 1u) << "by all lanes together";
}

TEST_F(DataFormsTest, EmptyFilesDoNotDecideWhatDataAre) {
  std::filesystem::create_directories(path("rows"));
  std::string rows;
  for (int i = 0; i < 12; ++i)
    rows += nlohmann::json{{"input_ids", std::vector<int>(20, i)}}.dump() + "\n";
  write("rows/0.json", "");
  write("rows/1.json", "broken\n" + rows);
  write("rows/2.json", rows);
  RunConfig config = on("rows", 2);
  config.on_bad_line = "skip";
  config.tokenizer = "nowhere";
  const RunTrace trace = train(config);
  EXPECT_EQ(trace.tokens_seen, 2 * 4 * 15);
  expect_contains(trace.log,
                  "24 of 24 rows are longer than the context of 16 tokens; 20.0% of all tokens are "
                  "left out, --max_context_width 20 takes every row whole");
  config.streaming = "on";
  EXPECT_EQ(train(config).tokens_seen, trace.tokens_seen);
}

TEST_F(DataFormsTest, AStreamIsPackedAndLimitedAsItIsAsked) {
  write_stream();
  for (std::string packing : {"best_fit", "rows"}) {
    RunConfig config = streaming(100'000);
    config.packing = packing;
    config.epochs = 2;
    config.checkpoint_dir = {path(packing)};
    RunTrace whole = train(config);
    config.max_dataset_len = 30;
    config.checkpoint_dir = {path(packing + "_limited")};
    RunTrace limited = train(config);
    expect_contains(limited.log, "The data has ended after 2 epochs");
    EXPECT_LT(limited.tokens_seen, whole.tokens_seen / 2);
    // In parts as in one.
    config.checkpoint_dir = {path(packing + "_parts")};
    config.max_steps = 3;
    RunTrace first = train(config);
    config.resume_from_checkpoint = config.checkpoint_dir;
    config.max_steps = 100'000;
    RunTrace rest = train(config);
    first.losses.insert(first.losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(first.losses.size(), limited.losses.size());
    EXPECT_EQ(rest.tokens_seen, limited.tokens_seen);
  }
}

TEST_F(DataFormsTest, AStreamWithoutHeldOutFilesHoldsOutItsLast) {
  write_stream();
  std::filesystem::remove(path("stream/validation.jsonl"));
  RunTrace trace = train(streaming(3));
  ASSERT_FALSE(trace.validations.empty());
  expect_contains(trace.log, "Training on a stream of 4 files");
  // As --eval_only does, which reads nothing else.
  RunConfig measure = streaming(3);
  measure.resume_from_checkpoint = measure.checkpoint_dir;
  measure.eval_only = true;
  const RunTrace measured = train(measure);
  EXPECT_EQ(measured.validations, std::vector{trace.validations.back()});
  expect_lacks(measured.log, "training text");
  for (int i = 1; i < 5; ++i) std::filesystem::remove(path(cat("stream/train-", i, ".jsonl")));
  expect_contains(failure(measure), "--eval_only: there is no validation text");
}

}  // namespace
}  // namespace tessera
