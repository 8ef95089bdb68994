// tessera checkpoint as a user meets it.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class CheckpointCommand : public ProgramTest {
 protected:
  ProgramResult checkpoint(const Words& words) { return run(Words{"checkpoint"} + words); }
  // Status 0, nothing on standard error but what `log_level` lets through.
  std::string output(const Words& words, int status = 0) {
    ProgramResult result = checkpoint(words);
    EXPECT_EQ(result.status, status) << result.err << result.out;
    return result.out;
  }
  Json json(const Words& words, int status = 0) {
    return Json::parse(output(words + Words{"--json"}, status));
  }
  // Checkpoints of steps 2, 4 and 6.
  void save_three(const std::string& directory = "ckpt") {
    ASSERT_EQ(
        run(train({"--max_steps", "6", "--checkpoint_freq", "2", "--checkpoint_dir", directory}))
            .status,
        0);
  }
  void flip_last_bit(const std::string& file) const {
    std::string content = read_file(path(file));
    content.back() = static_cast<char>(content.back() ^ 1);
    write(file, content);
  }
  // With its hash in the manifest.
  void write_record(const std::string& checkpoint, const std::string& text) const {
    Manifest manifest = read_manifest(path(checkpoint));
    for (ManifestFile& file : manifest.files)
      if (file.name == kRunName) file = {file.name, text.size(), hash_text(text)};
    write(cat(checkpoint, "/", kRunName), text);
    write(cat(checkpoint, "/", kManifestName), to_json(manifest));
  }
  // A process number of this machine that is in use by nobody.
  static std::string dead_maker() {
    pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return cat(child);
  }
};

TEST_F(CheckpointCommand, ListsADirectory) {
  save_three();
  const std::string dead = "llama_v2-8steps.tmp-" + dead_maker();
  fs::create_directory(path("ckpt/" + dead));
  fs::remove(path("ckpt/llama_v2-4steps/run.json"));
  fs::create_directory(path("ckpt/llama_v2-7steps"));
  const std::string text = output({"ls", "ckpt"});
  const Json all = json({"ls", "ckpt"});
  ASSERT_EQ(all["checkpoints"].size(), 4u);
  Words names;
  for (const Json& one : all["checkpoints"]) names.push_back(one["name"]);
  EXPECT_EQ(names,
            (Words{"llama_v2-7steps", "llama_v2-6steps", "llama_v2-4steps", "llama_v2-2steps"}));
  const Json& newest = all["checkpoints"][1];
  EXPECT_TRUE(newest["complete"] && newest["newest"]);
  EXPECT_FALSE(newest["best"]);
  EXPECT_EQ(newest["ranks"], 1);
  EXPECT_EQ(newest["step"], 6);
  EXPECT_EQ(newest["run"].get<std::string>().size(), 32u);
  EXPECT_LT(newest["age_seconds"], 300);
  EXPECT_FALSE(all["checkpoints"][0]["complete"] || all["checkpoints"][2]["complete"]);
  expect_contains(all["checkpoints"][2]["reason"].get<std::string>(), "run.json");
  EXPECT_EQ(all["leftovers"][0]["name"], dead);
  EXPECT_TRUE(all["leftovers"][0]["maker_has_ended"]);
  EXPECT_TRUE(all["lock"].is_null());
  expect_contains(text, "llama_v2-6steps  6     ");
  expect_contains(text, cat("  ", newest["run"].get<std::string>().substr(0, 8), "  newest\n"));
  expect_contains(text, "not complete: cannot read 'ckpt/llama_v2-4steps/run.json'");
  expect_contains(text, "not complete: ckpt/llama_v2-7steps/manifest.json not found\n");
  expect_contains(text, cat("leftover  ", dead, ", of a process that has ended\n"));

  fs::create_directory(path("empty"));
  EXPECT_EQ(output({"ls", "empty"}), "no checkpoints\n");
  expect_contains(output({"ls", "ckpt/llama_v2-2steps/"}), "llama_v2-2steps  2  ");
  expect_contains(checkpoint({"ls", "none"}).message(), "cannot read 'none'");
}

// What takes its place may be damaged, or not be there yet.
TEST_F(CheckpointCommand, SaysThatOneIsReplacedWhereItIs) {
  ASSERT_EQ(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})).status, 0);
  const fs::path one = path("ckpt/llama_v2-2steps"), old = path("ckpt/llama_v2-2steps.replaced");
  fs::copy(one, old);
  expect_contains(output({"ls", "ckpt"}), "  replaced by a newer one of its step\n");
  EXPECT_TRUE(json({"ls", "ckpt"})["checkpoints"][1]["replaced"]);
  fs::remove(one / "run.json");
  expect_lacks(output({"ls", "ckpt"}), "replaced by a newer one");
  EXPECT_FALSE(json({"ls", "ckpt"})["checkpoints"][1]["replaced"]);
  EXPECT_TRUE(json({"ls", "ckpt"})["checkpoints"][1]["newest"]);
}

// A resume from there would go on with the checkpoint, not with what was saved in it.
TEST_F(CheckpointCommand, NothingIsSavedInACheckpoint) {
  ASSERT_EQ(run(train({"--max_steps", "2", "--checkpoint_dir", "ckpt"})).status, 0);
  const std::string one = "ckpt/llama_v2-2steps";
  for (const Words& resume : {Words{}, Words{"--resume_from_checkpoint", one}}) {
    ProgramResult refused = run(train(Words{"--max_steps", "4", "--checkpoint_dir", one} + resume));
    EXPECT_EQ(refused.status, 2);
    expect_contains(refused.message(), cat("--checkpoint_dir: '", one,
                                           "' is a checkpoint; give the directory that it is in"));
  }
  EXPECT_EQ(names(one), (std::set<std::string>{"manifest.json", "run.json", "state.safetensors"}));
}

TEST_F(CheckpointCommand, MarksTheBest) {
  // The default of the record, written out.
  const Words saving{"--checkpoint_freq", "2",  "--checkpoint_dir", "ckpt",
                     "--best_val_loss",   "1e9"};
  ASSERT_EQ(run(train(saving + Words{"--max_steps", "5", "--validation_freq", "3",
                                     "--validation_batches", "1"}))
                .status,
            0);
  ASSERT_EQ(run(train(saving + Words{"--max_steps", "8", "--run_validation", "0",
                                     "--resume_from_checkpoint", "ckpt"}))
                .status,
            0);
  const Json all = json({"ls", "ckpt"});
  Words best;
  for (const Json& one : all["checkpoints"])
    if (one["best"]) best.push_back(one["name"]);
  ASSERT_EQ(best, Words{"llama_v2-5steps"});
  expect_contains(output({"show", "ckpt"}), " in llama_v2-5steps\n");
  expect_contains(output({"prune", "ckpt", "--keep", "1", "--keep_best", "--dry_run"}),
                  cat("keeps         ", best[0]));
  output({"prune", "ckpt", "--keep", "1", "--keep_best"});
  EXPECT_EQ(names("ckpt"), (std::set<std::string>{"llama_v2-8steps", best[0]}));
}

TEST_F(CheckpointCommand, ShowsWhatIsInACheckpoint) {
  save_three();
  const std::string text = output({"show", "ckpt"});
  for (const char* part :
       {"checkpoint    ckpt/llama_v2-6steps\n", "step          6\n", "tokens seen   384\n",
        "model         llama_v2, 35.04 K parameters: num_layers 2, hidden_width 32, num_heads 4",
        "mesh          whole parameters; its data ranks: 1\n", "tokenizer     byte, fingerprint ",
        "data          next sample 24 of a text of ", "version 3 of the format\n",
        "weights       21 tensors in 21 boxes, 35040 elements, 136.9 KiB\n",
        "weight   f32    [257, 32]  1      lm_head.weight\n",
        "optim.state.lm_head.weight.exp_avg\n", "optimizer_step\n"})
    expect_contains(text, part);
  const Json all = json({"show", "ckpt/llama_v2-4steps"});
  EXPECT_EQ(all["record"]["step"], 4);
  EXPECT_EQ(all["totals"]["weight"]["elements"], 35040);
  EXPECT_EQ(all["tensors"].size(), 85u);
  EXPECT_FALSE(all["tensors"][0].contains("statistics"));

  const std::string one = output({"show", "ckpt", "lm_head.weight"});
  expect_contains(one, "lm_head.weight  weight, f32 [257, 32]\n  minimum -0.");
  expect_contains(one, ", 0 of 8224 not finite\n  [0:257, 0:32]  state.safetensors  byte ");
  const Json steps = json({"show", "ckpt", "*.step"});
  EXPECT_EQ(steps["tensors"].size(), 21u);
  EXPECT_EQ(steps["tensors"][3]["statistics"]["mean"], 6);
  EXPECT_EQ(steps["tensors"][3]["boxes"][0]["file"], "state.safetensors");
  ProgramResult none = checkpoint({"show", "ckpt", "lm_head.wieght"});
  EXPECT_EQ(none.status, 1);
  expect_contains(none.message(), "has no tensor 'lm_head.wieght'; did you mean 'lm_head.weight'?");
  // Numbers are those that were written, or none are shown.
  flip_last_bit("ckpt/llama_v2-6steps/state.safetensors");
  ProgramResult damaged = checkpoint({"show", "ckpt", "*"});
  EXPECT_EQ(damaged.status, 1);
  expect_contains(damaged.message(), "has hash");
}

TEST_F(CheckpointCommand, ShowsOfAScheduleWhatItHas) {
  auto schedule = [&](const char* style) {
    run(train({"--max_steps", "1", "--checkpoint_dir", style, "--lr_decay_style", style}));
    const std::string text = output({"show", style});
    const size_t begin = text.find("schedule ");
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  EXPECT_EQ(schedule("step"), "schedule      step, peak 0.01, times 0.1 an epoch");
  EXPECT_EQ(schedule("fms"), "schedule      fms, peak 0.01, warm-up of 1 of 20 steps");
}

// Earlier versions recorded addresses whole.
TEST_F(CheckpointCommand, ShowsNoSecretsOfARecord) {
  save_three();
  const std::string old = "ckpt/llama_v2-4steps";
  Json record = Json::parse(read_file(path(old) / kRunName));
  record["options"]["dataset"] = "https://bob:secret@host/d.txt?X-Amz-Signature=secret";
  write_record(old, record.dump());
  EXPECT_EQ(json({"show", old})["record"]["options"]["dataset"], "https://host/d.txt?...");
  const std::string text = output({"diff", old, "ckpt"}, 1);
  expect_contains(text, "options.dataset: \"https://host/d.txt?...\" | \"/");
  for (const std::string& shown : {output({"show", old}), output({"show", old, "--json"}), text,
                                   output({"diff", "ckpt", old, "--json"}, 1)})
    EXPECT_EQ(shown.find("secret"), std::string::npos) << shown;
}

TEST_F(CheckpointCommand, VerifiesCheckpointsAndDirectories) {
  save_three();
  write("ckpt/llama_v2-2steps/notes.txt", "mine");
  std::string text = output({"verify", "ckpt"});
  expect_contains(text, "ckpt/llama_v2-6steps: whole, 2 files, 85 tensors in 85 boxes, ");
  expect_contains(text, "ckpt/llama_v2-2steps: whole, ");
  expect_contains(text, "  notes.txt is no part of the checkpoint\n");
  flip_last_bit("ckpt/llama_v2-4steps/state.safetensors");
  fs::remove(path("ckpt/llama_v2-2steps/manifest.json"));
  text = output({"verify", "ckpt", "--threads", "2"}, 1);
  expect_contains(text, "ckpt/llama_v2-6steps: whole, ");
  expect_contains(text, "ckpt/llama_v2-4steps: damaged\n  state.safetensors: tensor 'optim.state.");
  expect_contains(text, " has another hash than when it was written\n");
  expect_contains(text, "ckpt/llama_v2-2steps: damaged\n  manifest.json: is missing");
  Json all = json({"verify", "ckpt/llama_v2-4steps"}, 1);
  EXPECT_FALSE(all["whole"]);
  ASSERT_EQ(all["checkpoints"].size(), 1u);
  const Json& damage = all["checkpoints"][0]["damages"][0];
  EXPECT_EQ(damage["file"], "state.safetensors");
  EXPECT_TRUE(damage["tensor"].get<std::string>().starts_with("optim.state."));
  EXPECT_TRUE(damage["begin"].is_array() && damage["shape"].is_array());
  EXPECT_TRUE(json({"verify", "ckpt/llama_v2-6steps"})["whole"]);
  // All bytes are what was written, but it is no record.
  write_record("ckpt/llama_v2-6steps", "{}");
  expect_contains(output({"verify", "ckpt/llama_v2-6steps"}, 1), "is not the record of a run");
}

TEST_F(CheckpointCommand, KnowsCheckpointsOfVersion1) {
  const fs::path goldens = fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/checkpoint_version_1";
  for (const char* name : {"one_rank", "four_ranks"})
    fs::copy(goldens / name, path(name), fs::copy_options::recursive);
  expect_contains(output({"verify", "four_ranks"}), "four_ranks: whole, 5 files, 37 tensors in ");
  const std::string text = output({"show", "four_ranks"});
  expect_contains(text, "mesh          shard 2 x tp 2");
  expect_contains(text, "version 1 of the format\n");
  expect_contains(output({"show", "four_ranks", "lm_head.weight"}), "[0:128, 0:16]");
  EXPECT_FALSE(json({"diff", "one_rank", "four_ranks"}, 1)["equal"]);
  EXPECT_EQ(json({"ls", "four_ranks"})["checkpoints"][0]["ranks"], 4);
  flip_last_bit("four_ranks/state-00003-of-00004.safetensors");
  expect_contains(
      output({"verify", "four_ranks"}, 1),
      "  state-00003-of-00004.safetensors: has another hash than when it was written\n");
}

TEST_F(CheckpointCommand, ComparesCheckpoints) {
  save_three();
  ASSERT_EQ(run(Words{"run", "--standalone", "--nproc_per_node", "2"} +
                train({"--max_steps", "6", "--train_batch_size", "2", "--checkpoint_dir", "two"}))
                .status,
            0);
  const std::string same = output({"diff", "ckpt", "ckpt/llama_v2-6steps"});
  EXPECT_EQ(same,
            "ckpt/llama_v2-6steps | ckpt/llama_v2-6steps\nrecord: equal\n"
            "tensors: 85 of 85 equal\n");
  EXPECT_TRUE(json({"diff", "ckpt", "ckpt"})["equal"]);
  // The same windows on other ranks: sums are in another order.
  const Json ranks = json({"diff", "ckpt", "two"}, 1);
  EXPECT_FALSE(ranks["equal"]);
  double before = INFINITY;
  std::string role = "weight";
  for (const Json& tensor : ranks["tensors"]) {
    if (tensor["role"] == role) {
      EXPECT_LE(tensor["largest_absolute"], before);
    }
    role = tensor["role"];
    before = tensor["largest_absolute"];
    EXPECT_LT(before, 1e-3) << tensor;
  }
  std::set<std::string> fields;
  for (const Json& d : ranks["record"]) fields.insert(d["field"]);
  EXPECT_TRUE(fields.contains("data_ranks") && fields.contains("options.train_batch_size"));
  EXPECT_FALSE(fields.contains("model.num_layers") || fields.contains("step"));
  const std::string steps = output({"diff", "ckpt/llama_v2-4steps", "ckpt"}, 1);
  expect_contains(steps, "record:\n  step: 4 | 6\n");
  expect_contains(steps, "\nlargest   relative  different  ");
  expect_contains(steps, "8224 of 8224  lm_head.weight\n");

  // Another shape: tensors of one alone, and of other sizes.
  ASSERT_EQ(run(train({"--max_steps", "1", "--num_layers", "1", "--intermediate_size", "96",
                       "--checkpoint_dir", "other"}))
                .status,
            0);
  const std::string shapes = output({"diff", "ckpt", "other"}, 1);
  expect_contains(shapes, "  model.num_layers: 2 | 1\n");
  expect_contains(shapes, "  model.layers.1.mlp.down_proj.weight: f32 [32, 64] | none\n");
  expect_contains(shapes, "  model.layers.0.mlp.down_proj.weight: f32 [32, 64] | f32 [32, 96]\n");
}

TEST_F(CheckpointCommand, PrunesADirectory) {
  save_three();
  const std::string dead = "llama_v2-8steps.tmp-" + dead_maker();
  fs::create_directory(path("ckpt/" + dead));
  write("ckpt/" + dead + "/run.json", "half");
  write("ckpt/notes.txt", "mine");
  const std::set<std::string> before = names("ckpt");
  const std::string plan = output({"prune", "ckpt", "--keep", "1", "--every", "4", "--dry-run"});
  expect_contains(plan, "keeps         llama_v2-6steps  newest\n");
  expect_contains(plan, "keeps         llama_v2-4steps  every 4\n");
  expect_contains(plan, "would remove  llama_v2-2steps  older, ");
  expect_contains(plan, cat("would remove  ", dead, "  leftover\n"));
  expect_contains(plan, "would free ");
  EXPECT_EQ(names("ckpt"), before);
  expect_contains(output({"prune", "ckpt", "--keep", "1", "--every", "4"}), "removed       ");
  EXPECT_EQ(names("ckpt"),
            (std::set<std::string>{"llama_v2-6steps", "llama_v2-4steps", "notes.txt"}));
  EXPECT_EQ(checkpoint({"verify", "ckpt"}).status, 0);

  // What is damaged stays, and the newest complete one does.
  fs::remove(path("ckpt/llama_v2-6steps/state.safetensors"));
  expect_contains(output({"prune", "ckpt", "--keep", "1"}),
                  "keeps         llama_v2-6steps  not complete: ");
  EXPECT_TRUE(exists("ckpt/llama_v2-4steps") && exists("ckpt/llama_v2-6steps"));
}

TEST_F(CheckpointCommand, PrunesNothingWhileAJobSavesThere) {
  save_three();
  const pid_t job = start(
      train({"--max_steps", "100000", "--checkpoint_dir", "ckpt", "--resume_from_checkpoint",
             "ckpt", "--lr_decay_iters", "20", "--checkpoint_freq", "100000", "--epochs",
             "1000000"}),
      [] {}, "job");
  wait_for("ckpt/run.lock", "token");
  const ProgramResult refused = checkpoint({"prune", "ckpt", "--keep", "1"});
  EXPECT_EQ(refused.status, 1);
  expect_contains(refused.message(), cat("'ckpt' is in use by process ", job, " on "));
  expect_contains(output({"ls", "ckpt"}), cat("held by process ", job, " on "));
  EXPECT_EQ(json({"ls", "ckpt"})["lock"]["holder"].get<std::string>().find("process "), 0u);
  expect_contains(checkpoint({"prune", "ckpt", "--keep", "1", "--dry_run"}).err,
                  "nothing is removed there while it lives");
  EXPECT_TRUE(exists("ckpt/llama_v2-2steps"));
  ::kill(job, SIGKILL);
  finish(job);
  // Its lock is left.
  output({"prune", "ckpt", "--keep", "1"});
  EXPECT_FALSE(exists("ckpt/run.lock") || exists("ckpt/llama_v2-2steps"));
  EXPECT_TRUE(exists("ckpt/llama_v2-6steps"));
}

TEST_F(CheckpointCommand, WhatIsWrongIsSaid) {
  fs::create_directory(path("empty"));
  auto refusal = [&](const Words& words, int status) {
    const ProgramResult result = checkpoint(words);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_EQ(result.out, "");
    return result.message();
  };
  expect_contains(refusal({}, 2), "needs a command: ls, show, verify, prune, diff or convert");
  expect_contains(refusal({"verfy"}, 2), "did you mean verify?");
  expect_contains(refusal({"ls"}, 2), "tessera checkpoint ls DIR");
  expect_contains(refusal({"show"}, 2), "CHECKPOINT|DIR [TENSOR]");
  expect_contains(refusal({"verify", "a", "b"}, 2), "takes a checkpoint or a directory");
  expect_contains(refusal({"diff", "a"}, 2), "takes two checkpoints");
  expect_contains(refusal({"prune", "empty"}, 2), "needs --keep N");
  expect_contains(refusal({"prune", "empty", "--keep", "0"}, 2), "keep");
  expect_contains(refusal({"ls", "--betas", "1", "2"}, 2), "not an option of tessera checkpoint");
  expect_contains(refusal({"verify", "empty", "--keep", "3"}, 2),
                  "--keep is an option of tessera checkpoint prune alone");
  expect_contains(refusal({"prune", "none", "--keep", "1"}, 1), "'none' is no directory");
  expect_contains(refusal({"show", "empty"}, 1), "no complete checkpoint in 'empty'");
  expect_contains(refusal({"list"}, 2), "tessera checkpoint ls DIR");
  expect_contains(refusal({"verify", "empty"}, 1), "no checkpoint in 'empty'");
  expect_contains(refusal({"verify", "text.txt"}, 1), "is no directory");
  EXPECT_FALSE(exists("none"));
  for (const char* name : {"ls", "show", "verify", "prune", "diff"}) {
    const std::string help = output({name, "--help"});
    EXPECT_EQ(help.find(cat("tessera checkpoint ", name, " ")), 0u);
    expect_contains(help, cat("\n    tessera checkpoint ", name, " "));
    expect_contains(output({"--help"}), cat("\n    tessera checkpoint ", name, " "));
  }
}

}  // namespace
}  // namespace tessera
