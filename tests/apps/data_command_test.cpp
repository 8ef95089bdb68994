// tessera data prepare and data inspect as a user meets them.
#include <gtest/gtest.h>

#include "data/prepared_dataset.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class DataCommand : public ProgramTest {
 protected:
  // So many documents, all different.
  void write_documents(const std::string& name, int count, int words) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += cat("{\"text\": \"", i);
      for (int w = 0; w < words; ++w) lines += w % 2 == 0 ? " birds" : " sing";
      lines += "\"}\n";
    }
    write(name, lines);
  }
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path(folder)))
      if (entry.is_regular_file()) files[entry.path().filename()] = read_file(entry.path());
    return files;
  }
  static Words prepare(const std::string& output, const Words& more = {}) {
    return Words{"data", "prepare",      "--dataset", "docs.jsonl",     "--tokenizer",
                 "byte", "--output_dir", output,      "--shard_tokens", "1000000"} +
           more;
  }
};

TEST_F(DataCommand, WhatIsKilledOrInterruptedGoesOnAndLeavesTheSameFiles) {
  write_documents("docs.jsonl", 10'000, 200);
  const ProgramResult whole = run(prepare("whole"));
  EXPECT_EQ(whole.status, 0) << whole.err;
  expect_contains(whole.out, "training  ");
  expect_contains(whole.out, "held out  ");
  const auto expected = contents("whole");
  EXPECT_GE(expected.size(), 10u);
  EXPECT_FALSE(expected.contains("run.lock"));
  for (const auto& [shard, signal] : {std::pair{"shard-00001", SIGKILL},
                                      {"shard-00003", SIGINT},
                                      {"shard-00005", SIGKILL},
                                      {"shard-00007", SIGTERM}}) {
    const pid_t child = start(prepare("out", {"--threads", "1"}));
    wait_for("out/manifest.json", shard);
    ::kill(child, signal);
    const ProgramResult result = finish(child);
    if (result.status == 1) {
      EXPECT_EQ(result.message(),
                "tessera: interrupted; the same command goes on behind the shards that are whole "
                "in 'out'");
    } else {  // it may have come to its end before
      EXPECT_TRUE(result.status == 137 || result.status == 0) << result.status << result.err;
    }
  }
  EXPECT_EQ(run(prepare("out")).status, 0);
  EXPECT_TRUE(contents("out") == expected);
  // There is nothing left to do.
  EXPECT_EQ(run(prepare("out")).out, whole.out);
  const ProgramResult other = run(prepare("out", {"--validation_fraction", "0.5"}));
  EXPECT_EQ(other.status, 1);
  expect_contains(other.message(), "'out' holds the preparation of other data");
}

TEST_F(DataCommand, FlatFilesWhoseShardsWereBeingRemovedAreGoneOnWith) {
  write_documents("docs.jsonl", 300, 20);
  const ProgramResult whole = run(prepare("whole", {"--output_form", "bin"}));
  EXPECT_EQ(whole.status, 0) << whole.err;
  const auto expected = contents("whole");
  // As it is when the call is killed behind the first shard.
  EXPECT_EQ(run(prepare("out")).status, 0);
  for (const char* name : {"train.bin", "val.bin"})
    std::filesystem::copy_file(path(cat("whole/", name)), path(cat("out/", name)));
  std::filesystem::remove(path("out/shard-00000.bin"));
  const ProgramResult shards = run(prepare("out"));
  EXPECT_EQ(shards.status, 1);
  expect_contains(shards.message(), "out/shard-00000.bin'");
  const ProgramResult rest = run(prepare("out", {"--output_form", "bin"}));
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.out, whole.out);
  EXPECT_TRUE(contents("out") == expected);
  const ProgramResult again = run(prepare("out", {"--output_form", "bin"}));
  EXPECT_EQ(again.status, 1);
  expect_contains(again.message(), "'out' holds finished files of ids ('train.bin')");
}

TEST_F(DataCommand, ADirectoryIsPreparedByOneProcessAtATime) {
  write_documents("docs.jsonl", 10'000, 200);
  const pid_t child = start(
      prepare("out"), [] {}, "first");
  wait_for("out/manifest.json", "shard-00000");
  ::kill(child, SIGSTOP);
  if (exists("out/run.lock")) {
    const ProgramResult second = run(prepare("out"));
    EXPECT_EQ(second.status, 1);
    expect_contains(second.message(), "another process prepares 'out'");
  }
  ::kill(child, SIGCONT);
  EXPECT_EQ(finish(child).status, 0);
}

TEST_F(DataCommand, PreparedConversationsAreTrainedOn) {
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += R"({"prompt": "hello", "completion": " there"})"
             "\n";
  write("pairs.jsonl", lines);
  const ProgramResult prepared =
      run({"data", "prepare", "--dataset", "pairs.jsonl", "--tokenizer", "byte", "--output_dir",
           "pairs", "--validation_fraction", "0"});
  EXPECT_EQ(prepared.status, 0) << prepared.err;
  expect_lacks(run({"data", "inspect", "pairs", "--tokenizer", "byte"}).err, "not prepared");
  const ProgramResult trained =
      run(train({"--dataset", "pairs", "--max_context_width", "16", "--max_steps", "1"}));
  EXPECT_EQ(trained.status, 0) << trained.err;
}

TEST_F(DataCommand, ArgumentsOfOtherPreparationsAreTakenAsTheyAre) {
  write_documents("docs.jsonl", 1000, 40);
  ProgramResult grouped =
      run({"data", "prepare", "--preset", "grouped", "--dataset_path", "docs.jsonl",
           "--val_split_percentage", "20", "--hf_tokenizer_name", "byte", "--output_dir", "out",
           "--num_proc", "64", "--seq_len", "512"});
  EXPECT_EQ(grouped.status, 0) << grouped.err;
  const PreparedDataset train = open_prepared_dataset(path("out/train"));
  const PreparedDataset val = open_prepared_dataset(path("out/val"));
  EXPECT_EQ(train.manifest.window, 512);
  EXPECT_EQ(train.training.document_view()[7].length(), 512);
  EXPECT_NEAR(static_cast<double>(val.training.documents()) /
                  static_cast<double>(train.training.documents() + val.training.documents()),
              0.2, 0.01);
  std::vector<int32_t> ids(3);
  val.training.tokens().copy(0, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'8', '0', '0'}));  // the first document held out

  // Each of the folders is data by itself.
  const Words model{
      "train", "--eval_only",  "1",    "--model_type",     "llama_v2", "--hidden_width",
      "16",    "--num_layers", "1",    "--num_heads",      "1",        "--intermediate_size",
      "16",    "--tokenizer",  "byte", "--vocab_size",     "257",      "--max_context_width",
      "512",   "--threads",    "1",    "--val_batch_size", "1",        "--validation_batches",
      "3"};
  const std::string both = run(model + Words{"--dataset", "out"}).err;
  const std::string loss = both.substr(both.find("Validation loss"));
  for (const Words& data : {Words{"--training_dir", "out/train", "--test_dir", "out/val"},
                            Words{"--dataset", "out/train", "--validation_dataset", "out/val"},
                            Words{"--validation_dataset", "out"}}) {
    const ProgramResult one = run(model + data);
    EXPECT_EQ(one.status, 0) << one.err;
    expect_contains(one.err, loss.substr(0, loss.find('\n')));
  }

  const Words trains{"train", "--max_steps", "1", "--test_dir", "out/val"};
  const ProgramResult alone = run(trains);
  EXPECT_EQ(alone.status, 2);
  expect_contains(alone.message(), "--test_dir out/val is validation data");
  expect_contains(alone.message(), "give --training_dir or --dataset");

  ProgramResult flat =
      run({"data", "prepare", "--preset", "openwebtext", "--dataset", "docs.jsonl", "--output-dir",
           "data", "--test-size", "0.01", "--num-proc", "1", "--tokenizer", "byte"});
  EXPECT_EQ(flat.status, 0) << flat.err;
  EXPECT_EQ(names("data/docs.jsonl"), (std::set<std::string>{"train.bin", "val.bin"}));
  expect_lacks(flat.err, "nothing is held out");
  write_documents("few.jsonl", 3, 40);
  flat = run({"data", "prepare", "--preset", "openwebtext", "--dataset", "few.jsonl", "--tokenizer",
              "byte"});
  EXPECT_EQ(flat.status, 0) << flat.err;
  EXPECT_EQ(names("data/few.jsonl"), std::set<std::string>{"train.bin"});
  expect_contains(flat.err, "nothing is held out: 0.05% of these documents is none");
  const std::string train_bin = read_file(path("data/docs.jsonl/train.bin"));
  EXPECT_EQ(train_bin.substr(0, 4), std::string("0\0 \0", 4));
  EXPECT_EQ(train_bin.substr(train_bin.size() - 2), std::string("\0\1", 2));  // end of text

  ProgramResult windows =
      run({"data", "prepare", "--preset", "wikicorpus", "--dataset", "docs.jsonl",
           "--dataset_config_name", "None", "--tokenizer", "byte"});
  EXPECT_EQ(windows.status, 0) << windows.err;
  const PreparedDataset wiki = open_prepared_dataset(path("wikicorpus_llama2_7B_tokenized_4k"));
  EXPECT_EQ(wiki.manifest.window, 4096);
  EXPECT_EQ(wiki.validation.documents(), 0);
}

TEST_F(DataCommand, WhatIsMissingOrContradictsIsSaid) {
  write_documents("docs.jsonl", 10, 10);
  auto refusal = [&](const Words& words, int status) {
    const ProgramResult result = run(Words{"data"} + words);
    EXPECT_EQ(result.status, status) << result.err;
    return result.message();
  };
  expect_contains(refusal({}, 2), "needs a command: prepare or inspect");
  expect_contains(refusal({"prepar"}, 2), "did you mean prepare?");
  expect_contains(refusal({"prepare"}, 2), "--dataset is required");
  expect_contains(refusal({"prepare", "--dataset", "docs.jsonl"}, 2), "--output_dir is required");
  expect_contains(refusal({"prepare", "--dataset", "docs.jsonl", "--output_dir", "out"}, 2),
                  "--tokenizer is required");
  expect_contains(refusal({"prepare", "--dataset", "docs.jsonl", "--output_dir", "s3://bucket/out",
                           "--tokenizer", "byte"},
                          2),
                  "--output_dir 's3://bucket/out' is not of this machine");
  expect_contains(
      refusal({"prepare", "--dataset", "docs.jsonl", "--output_dir", "out", "--tokenizer", "byte",
               "--val_split_percentage", "5", "--test_size", "0.1"},
              2),
      "contradict each other");
  write("talks.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n");
  write("rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [-100, 2]}\n");
  for (const char* data : {"talks.jsonl", "rows.jsonl"}) {
    expect_contains(refusal({"prepare", "--dataset", data, "--output_dir", cat("bin-", data),
                             "--tokenizer", "byte", "--output_form", "bin"},
                            1),
                    "what is learned of the rows cannot be said in a .bin file");
  }
  EXPECT_FALSE(exists("bin-talks.jsonl"));
  EXPECT_FALSE(exists("bin-rows.jsonl/shard-00000.bin"));
  expect_contains(refusal({"inspect"}, 2), "takes one file");
  expect_contains(refusal({"inspect", "none.txt"}, 1),
                  "tessera: data inspect: cannot read 'none.txt'");
  expect_contains(refusal({"inspect", "--dataset", "none.txt"}, 1), "--dataset: cannot read 'none");
  EXPECT_FALSE(exists("out"));
  const ProgramResult help = run({"data", "--help"});
  EXPECT_EQ(help.status, 0);
  expect_contains(help.out, "--shard_tokens");
  expect_contains(help.out, "tessera data inspect prepared");
}

TEST_F(DataCommand, InspectSaysWhatIsThere) {
  write_documents("docs.jsonl", 300, 20);
  write("docs.jsonl", read_file(path("docs.jsonl")) + read_file(path("docs.jsonl")));
  const std::string text = run({"data", "inspect", "docs.jsonl", "--samples", "1"}).out;
  expect_contains(text, "documents     600\n");
  expect_contains(text, "copies        50.0 % of the documents");
  expect_contains(text, " bytes: ");
  expect_contains(text, "|####");
  const std::string tokens =
      run({"data", "inspect", "docs.jsonl", "--tokenizer", "byte", "--max_context_width", "64"})
          .out;
  expect_contains(tokens, "the largest id is 256");
  expect_contains(tokens, "at a context of 64 tokens");
  expect_contains(tokens, "  best fit");

  EXPECT_EQ(run(prepare("out", {"--validation_fraction", "0.1"})).status, 0);
  const std::string prepared = run({"data", "inspect", "out", "--tokenizer", "byte"}).out;
  expect_contains(prepared, "form          prepared data\n");
  expect_contains(prepared, "all hashes right");
  expect_contains(prepared, "held out\n");
  expect_contains(prepared, " tokens: ");
  expect_contains(run({"data", "inspect", "out/shard-00000.bin"}).out, "token cache, all hashes");
  std::string damaged = read_file(path("out/shard-00000.bin"));
  damaged[50] ^= 1;
  write("out/shard-00000.bin", damaged);
  const ProgramResult refused = run({"data", "inspect", "out"});
  EXPECT_EQ(refused.status, 1);
  expect_contains(refused.message(), "out/shard-00000.bin' is damaged (its ids fail their hash)");

  write("rows.jsonl",
        "{\"input_ids\": [1, 2, 3, 900], \"labels\": [-100, -100, 3, 900]}\n"
        "{\"input_ids\": [1, 2]}\n");
  const std::string rows = run({"data", "inspect", "rows.jsonl", "--max_context_width", "4"}).out;
  expect_contains(rows, "rows of ids");
  expect_contains(rows, "learned       66.7 %");
  expect_contains(rows, "25.0 % padding");
  expect_contains(rows, ": 1 2 3 900");
  write("talks.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n");
  expect_contains(run({"data", "inspect", "talks.jsonl"}).out, "conversations");
  const std::string talks = run({"data", "inspect", "talks.jsonl", "--tokenizer", "byte"}).out;
  expect_contains(talks, "learned       66.7 %");  // cde and the end of text, of six
  write("flat.bin", std::string("a\0b\0\0\1c\0\0\1", 10));
  const std::string flat = run({"data", "inspect", "flat.bin", "--tokenizer", "byte"}).out;
  expect_contains(flat, "ids of 2 bytes");
  expect_contains(flat, "documents     2\n");
  expect_contains(run({"data", "inspect", "flat.bin"}).out,
                  "--tokenizer tells where documents end");
}

}  // namespace
}  // namespace tessera
