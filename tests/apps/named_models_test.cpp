// Models and tokenizers that options name on servers, through the program.
#include "tests/apps/ranks_fixture.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

// What server.py says that main is: the SHA-1 of the word.
const std::string kCommit = "b28b7af69320201d1cf206ebf28373980add1451";

class NamedModels : public Ranks {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_HOME", "AWS_ACCESS_KEY_ID"})
      ::unsetenv(name);
    ::setenv("HF_ENDPOINT", server_.url("").c_str(), 1);
    ::setenv("HF_HOME", path("home").c_str(), 1);
    ::setenv("AWS_ENDPOINT_URL", server_.url("/s3").c_str(), 1);
  }

  // A tiny model as the hub has it at o/m, with a file that nobody needs.
  void publish(const std::string& settings = R"({"revisions": ["main", "v2"]})") {
    ProgramResult made = run(train({"--max_steps", "1", "--checkpoint_dir", "made"}));
    ASSERT_EQ(made.status, 0) << made.err;
    made = run({"export", "made", "model"});
    ASSERT_EQ(made.status, 0) << made.err;
    set(settings);
    for (const std::string& name : names("model")) {
      server_.write(cat("hub/models/o/m/main/", name), read_file(path("model") / name));
      server_.write(cat("s3/public/dir/m/", name), read_file(path("model") / name));
      server_.write(cat("files/m/", name), read_file(path("model") / name));
    }
    server_.write("hub/models/o/m/main/README.md", "a card");
    server_.write("hub/models/o/m/main/pytorch_model.bin", "pickled");
    server_.write("hub/models/o/m/main/original/consolidated.pth", "pickled");
  }
  void set(const std::string& settings) { server_.write("hub/models/o/m.json", settings); }

  static Words fine_tune(const Words& more = {}, int steps = 2) {
    return Words{"train",    "--hf_model",
                 "o/m",      "--dataset",
                 "text.txt", "--max_context_width",
                 "16",       "--train_batch_size",
                 "4",        "--max_steps",
                 cat(steps), "--threads",
                 "1",        "--run_validation",
                 "0",        "--bf16",
                 "0",        "--peak_tflops_per_gpu",
                 "1",        "--comm_timeout",
                 "60",       "--lr_decay_iters",
                 "20"} +
           more;
  }
  std::vector<std::string> fetched() const { return server_.requests("/resolve/"); }
  size_t count(std::string_view part) const { return server_.requests(part).size(); }

  LocalServer server_;
};

TEST_F(NamedModels, AModelOfTheHubIsFetchedOnceAndRecorded) {
  publish();
  ProgramResult result = run(fine_tune({"--checkpoint_dir", "ckpt"}));
  ASSERT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, cat("hf://o/m@", kCommit, " in "));
  for (std::string file : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "model.safetensors"})
    EXPECT_EQ(count(cat("/resolve/", kCommit, "/", file)), 1u) << file;
  for (std::string file : {"README", "pytorch_model", "consolidated"})
    EXPECT_EQ(count(file), 0u) << file;
  std::string record = read_file(path("ckpt/llama_v2-2steps/run.json"));
  expect_contains(record, cat("\"hf_pretrained_model_name_or_dir\": \"hf://o/m@", kCommit, "\""));
  expect_contains(record, cat("\"tokenizer\": \"hf://o/m@", kCommit, "\""));
  // It is the same run as from the directory.
  ProgramResult local = run(fine_tune({"--hf_model", "model", "--metrics_file", "local.jsonl"}));
  ASSERT_EQ(local.status, 0) << local.err;
  size_t before = fetched().size();
  result = run(fine_tune({"--metrics_file", "again.jsonl"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(losses("again.jsonl"), losses("local.jsonl"));
  EXPECT_EQ(fetched().size(), before);
  EXPECT_EQ(count("/tree/"), 1u);  // the list of a commit does not change

  // What goes on with it takes the commit that it had, and asks nobody.
  set(R"({"revisions": ["main", "v2"], "moved_on": {"main": "v2"}})");
  size_t requests = server_.requests().size();
  Words resume{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"};
  result = run(fine_tune(resume + Words{"--tokenizer", "o/m"}, 3));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(server_.requests().size(), requests) << result.err;
  expect_lacks(result.err, " W [");
  record = read_file(path("ckpt/llama_v2-3steps/run.json"));
  expect_contains(record, cat("\"hf_pretrained_model_name_or_dir\": \"hf://o/m@", kCommit, "\""));
  expect_contains(record, cat("\"tokenizer\": \"hf://o/m@", kCommit, "\""));
  // A new run takes what is there now.
  result = run(fine_tune());
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "'hf://o/m@");
  expect_contains(result.message(), "has no config.json");
}

TEST_F(NamedModels, RanksOfAHostFetchOnce) {
  publish(R"({"revisions": ["main"], "slow": "model.safetensors"})");
  run_ranks(2, fine_tune({"--train_batch_size", "2"}));
  EXPECT_EQ(count("/revision/"), 1u);
  EXPECT_EQ(count("/tree/"), 1u);
  EXPECT_EQ(count("/resolve/"), 5u);
  EXPECT_EQ(count("/cdn/"), 1u);
  // Hosts that share no cache fetch each for themselves, of the commit that rank 0 found.
  run_two_hosts(fine_tune({"--train_batch_size", "1", "--cache_dir", "other"}));
  EXPECT_EQ(count("/revision/"), 2u);
}

TEST_F(NamedModels, WhatFailsMidwayIsNotTakenForWhole) {
  publish(R"({"revisions": ["main"], "missing": "tokenizer_config.json"})");
  ProgramResult result = run(fine_tune());
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "tokenizer_config.json': status 404");
  size_t before = count("/config.json ");
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  result = run(fine_tune());
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "has not been fetched, and HF_HUB_OFFLINE");
  ::unsetenv("HF_HUB_OFFLINE");
  // All ranks end with what stopped the first.
  result = run(agent(2, fine_tune()));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err, "tokenizer_config.json': status 404");
  set(R"({"revisions": ["main"]})");
  result = run(fine_tune());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count("/config.json "), before);  // what had come whole is kept
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  result = run(fine_tune());
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(NamedModels, ADownloadThatIsKilledIsDoneAgain) {
  publish(R"({"revisions": ["main"], "slow": "model.safetensors", "slow_seconds": 100})");
  pid_t child = start(fine_tune());
  for (const double end = monotonic_seconds() + 100;
       count("/tokenizer.json") == 0 && monotonic_seconds() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGINT);
  ProgramResult result = finish(child);
  EXPECT_EQ(result.status, 128 + SIGINT) << result.err;
  set(R"({"revisions": ["main"]})");
  result = run(fine_tune());
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(NamedModels, WhoMayNotOrCannotIsToldWhatToDo) {
  publish(R"({"revisions": ["main"], "gated": "hf_good"})");
  ProgramResult result = run(fine_tune());
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "status 403 (Access to this model is restricted)");
  expect_contains(result.message(), "accept the licence on its page, and set HF_TOKEN");
  result = run(fine_tune({"--hf_model", "o/none"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "the hub has no model 'o/none' that may be read");
  result = run(fine_tune({"--hf_model", "o/m@v9"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "'o/m' has no such branch, tag or commit");
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  result = run(fine_tune({"--hf_model", "o/none"}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "HF_HUB_OFFLINE lets nothing be fetched");
  ::unsetenv("HF_HUB_OFFLINE");
  ::setenv("HF_TOKEN", "hf_good", 1);
  result = run(fine_tune());
  EXPECT_EQ(result.status, 0) << result.err;
  expect_lacks(result.err, "hf_good");
}

TEST_F(NamedModels, APlanReadsTheConfigurationAlone) {
  publish();
  ProgramResult plan = run({"plan", "--hf_model", "o/m"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  auto head = [](const std::string& text) { return text.substr(0, text.find("Passes:")); };
  EXPECT_EQ(head(plan.out), head(run({"plan", "--hf_model", "model"}).out));
  EXPECT_EQ(count("/resolve/"), 2u);
  ProgramResult listing = run({"plan", "--hf_model", "o/m", "--print_config"});
  expect_contains(listing.out, "hf_pretrained_model_name_or_dir = \"o/m\"");
  // Nobody to ask: what is there is taken, and what is not is an error soon.
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
  plan = run({"plan", "--hf_model", "o/m"});
  EXPECT_EQ(plan.status, 0) << plan.err;
  expect_contains(plan.err, "as it was when it was fetched");
  plan = run({"plan", "--hf_model", "o/other"});
  EXPECT_EQ(plan.status, 1);
  EXPECT_LT(plan.seconds, 60);
  for (const char* part : {"give the path of a directory", "HF_ENDPOINT", "hf download o/other"})
    expect_contains(plan.message(), part);
}

TEST_F(NamedModels, AKnownModelOfOneWordIsFetchedAsOthersAre) {
  publish();
  for (const std::string& name : names("model"))
    server_.write(cat("hub/models/gpt2/main/", name), read_file(path("model") / name));
  server_.write("hub/models/gpt2.json", R"({"revisions": ["main"]})");
  // Its shape is known without asking.
  EXPECT_EQ(run({"plan", "--hf_model", "gpt2"}).status, 0);
  EXPECT_TRUE(server_.requests().empty());
  const Words tokenizer = train({"--tokenizer", "gpt2", "--max_steps", "1"});
  ProgramResult result = run(tokenizer);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, cat("--tokenizer gpt2: hf://gpt2@", kCommit));
  EXPECT_EQ(count("safetensors"), 0u);
  const Words model = fine_tune({"--hf_model", "gpt2"});
  result = run(model);
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, cat("gpt2: hf://gpt2@", kCommit));
  // A directory of that name comes first.
  fs::copy(path("model"), path("gpt2"));
  const size_t requests = count("");
  for (const Words& words : {tokenizer, model}) {
    result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_EQ(count(""), requests);
}

TEST_F(NamedModels, OtherCommandsTakeThemToo) {
  publish();
  write("short.txt", "the quick fox");
  Words encode{"tokenizer", "encode", "short.txt", "--tokenizer"};
  std::string ids = run(encode + Words{"byte"}).out;
  for (const std::string& name :
       {std::string("o/m"), server_.url("/o/m"), server_.other_url("/files/m/tokenizer.json"),
        std::string("s3://public/dir/m")}) {
    ProgramResult result = run(encode + Words{name});
    EXPECT_EQ(result.status, 0) << name << result.err;
    EXPECT_EQ(result.out, ids) << name;
  }
  EXPECT_EQ(count("safetensors"), 0u);
  Words prompt{"--prompt", "the quick", "--temperature", "0", "--max_new_tokens", "8"};
  std::string text = run(Words{"generate", "model"} + prompt).out;
  for (const std::string& name : {std::string("o/m"), server_.other_url("/files/m")}) {
    ProgramResult result = run(Words{"generate", name} + prompt);
    EXPECT_EQ(result.status, 0) << name << result.err;
    EXPECT_EQ(result.out, text) << name;
  }
  ProgramResult result = run({"export", "made", "again", "--tokenizer", "o/m"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(read_file(path("again/tokenizer.json")), read_file(path("model/tokenizer.json")));
  result = run({"data", "prepare", "--dataset", "text.txt", "--tokenizer", "o/m", "--output_dir",
                "prepared", "--validation_fraction", "0"});
  EXPECT_EQ(result.status, 0) << result.err;
  result = run(train({"--tokenizer", server_.other_url("/files/m/none.json")}));
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "none.json' is not there: check the address");
}

// What the hub's tools have fetched is taken without asking anybody.
TEST_F(NamedModels, TheCacheOfTheHubsToolsComesFirst) {
  publish();
  fs::path snapshot = path("home/hub/models--x--y/snapshots") / kCommit;
  make_directories(path("home/hub/models--x--y/refs"));
  write("home/hub/models--x--y/refs/main", kCommit);
  make_directories(snapshot);
  fs::copy(path("model"), snapshot);
  ProgramResult result = run(fine_tune({"--hf_model", "x/y", "--checkpoint_dir", "ckpt"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(server_.requests().empty());
  expect_contains(read_file(path("ckpt/llama_v2-2steps/run.json")), cat("hf://x/y@", kCommit));
  // Not if they have fetched a part of it only.
  fs::remove(snapshot / "model.safetensors");
  result = run(fine_tune({"--hf_model", "x/y"}));
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(count("/api/models/x/y/"), 1u);
}

TEST_F(NamedModels, ATokenizerOfOneWordIsThatOfAModelInTheCacheOfThisMachine) {
  publish();
  const std::string snapshot = cat("home/hub/models--gpt2/snapshots/", kCommit, "/");
  fs::create_directories(path(snapshot));
  fs::create_directories(path("home/hub/models--gpt2/refs"));
  write("home/hub/models--gpt2/refs/main", kCommit);
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    write(snapshot + name, read_file(path("model") / name));
  const Words prepare{"data", "prepare", "--dataset", "text.txt", "--output_dir", "out"};
  for (const Words& words :
       {prepare + Words{"--tokenizer", "gpt2"}, prepare + Words{"--preset", "openwebtext"},
        Words{"data", "inspect", "out", "--tokenizer", "gpt2"},
        Words{"tokenizer", "info", "--tokenizer", "gpt2"},
        train({"--tokenizer", "gpt2", "--max_steps", "1"})}) {
    const ProgramResult result = run(words);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_TRUE(names("out/text.txt").contains("train.bin"));
  expect_contains(run(prepare + Words{"--tokenizer", "gpt3"}).message(), "(hf://gpt3 is that of");
}

}  // namespace
}  // namespace tessera
