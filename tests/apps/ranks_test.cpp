// Several ranks as real processes, by `tessera run` and by hand: the same bits over every
// transport, resuming, signals, and errors that reach every rank.
#include <sched.h>
#include <sys/resource.h>
#include <zlib.h>

#include <array>
#include <span>

#include "base/process_identity.h"
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

TEST_F(Ranks, WarningsThatAllWouldGiveComeFromOne) {
  ProgramResult result = run_ranks(2, job(1, {"--max_steps", "1", "--framework", "fsdp",
                                              "--vocab_size", "300", "--checkpoint_dir", "ckpt"}));
  auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = 0; (at = result.err.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("--framework has no effect"), 1u) << result.err;
  EXPECT_EQ(count("the other rows are never used"), 1u) << result.err;
  result = run_ranks(2, job(1, {"--max_steps", "2", "--vocab_size", "300", "--beta2", "0.9",
                                "--resume_from_checkpoint", "ckpt", "--lr", "0.5"}));
  EXPECT_EQ(count("--beta2 was 0.95 and is 0.9"), 1u) << result.err;
  EXPECT_EQ(count("--lr 0.5: the checkpoint has 0.01"), 1u) << result.err;
}

TEST_F(Ranks, EveryTransportGivesTheSameBits) {
  ProgramResult alone = run(job(kGlobalBatch, {"--metrics_file", "one"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  Words one = losses("one");
  ASSERT_EQ(one.size(), static_cast<size_t>(kSteps));
  for (int ranks : {2, 4}) {
    Words words = job(kGlobalBatch / ranks);
    auto losses_over = [&](const std::string& transport) {
      std::string file = cat(transport, ranks);  // a metrics file is appended to
      run_ranks(ranks, words + Words{"--distributed_backend", transport, "--metrics_file", file});
      return losses(file);
    };
    Words shared = losses_over("shared_memory");
    EXPECT_EQ(losses_over("gloo"), shared);
    if (ranks == 4) {
      run_two_hosts(words + Words{"--metrics_file", "mix"});
      EXPECT_EQ(losses("mix"), shared);
    }
    expect_close(shared, one, 1e-3);
  }
}

TEST_F(Ranks, LearnFromTheDataOfOneRank) {
  std::string lines;
  for (int i = 0; i < 60; ++i)
    lines += nlohmann::json{{"text", cat(i, " ", made_up_text(5 + i % 7))}}.dump() + "\n";
  write("lines.jsonl", lines);
  auto hashes = [&](const std::string& file) {
    Words found;
    const std::string content = read_file(path(file));
    for (std::string_view line : split(trim(content), '\n'))
      found.push_back(nlohmann::json::parse(line).at("data_hash").get<std::string>());
    EXPECT_EQ(found.size(), size_t{kSteps});
    return found;
  };
  for (std::string streaming : {"off", "on"}) {
    Words data{"--dataset", "lines.jsonl", "--streaming", streaming, "--data_hash", "1"};
    data = data + Words{"--epochs", "9", "--data_lanes", "3", "--validation_fraction", "0"};
    const std::string one = streaming + "1";
    ProgramResult alone = run(job(kGlobalBatch, data + Words{"--metrics_file", one}));
    ASSERT_EQ(alone.status, 0) << alone.err;
    for (int ranks : {2, 4}) {
      const std::string file = cat(streaming, ranks);
      run_ranks(ranks, job(kGlobalBatch / ranks, data + Words{"--metrics_file", file}));
      EXPECT_EQ(hashes(file), hashes(one)) << file;
    }
    run_ranks(2, job(1, data + Words{"--metrics_file", streaming + "2x2",
                                     "--gradient_accumulation_steps", "2"}));
    EXPECT_EQ(hashes(streaming + "2x2"), hashes(one));
  }
  EXPECT_NE(hashes("on1"), hashes("off1"));
}

// Where all windows are equal, so is what is left of them.
TEST_F(Ranks, DropTheSameWithOneSeed) {
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += nlohmann::json{{"text", std::string(2000, 'a')}}.dump() + "\n";
  write("lines.jsonl", lines);
  const Words model{"--model_type", "gpt2", "--num_key_value_heads", "4", "--resid_pdrop", "0.3"};
  const Words data{"--dataset", "lines.jsonl", "--data_lanes", "2", "--validation_fraction", "0"};
  const Words once = job(2, model + data + Words{"--max_steps", "1", "--hash_file", "hashes"});
  for (const Words& how : {Words{"off", "1"}, Words{"on", "1"}, Words{"on", "0"}}) {
    run_ranks(2, once + Words{"--streaming", how[0], "--same_seed", how[1]});
    Words dropped[2];
    for (int rank : {0, 1}) {
      const std::string content = read_file(path(cat("hashes.rank", rank)));
      for (std::string_view line : split(content, '\n'))
        if (line.find("\tforward\tdropout\t") != line.npos) dropped[rank].emplace_back(line);
    }
    EXPECT_FALSE(dropped[0].empty());
    EXPECT_EQ(dropped[0] == dropped[1], how[1] == "1") << join(how, " ");
  }
}

// Hosts have cores of their own number, and nodes ranks: threads are each rank's own affair.
TEST_F(Ranks, MayHaveDifferentNumbersOfThreads) {
  auto losses_with = [&](const Words& threads) {
    std::string file = "threads" + threads[0] + threads[1];
    int port = free_port();
    std::vector<pid_t> ranks;
    for (int rank : {0, 1}) {
      Words words = job(kGlobalBatch / 2, {"--threads", threads[static_cast<size_t>(rank)],
                                           "--hidden_width", "64", "--metrics_file", file});
      ranks.push_back(start_rank(rank, 2, port, words));
    }
    for (pid_t pid : ranks) {
      ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << result.err;
      expect_contains(result.err, " of 2: master_addr=127.0.0.1");
    }
    return losses(file);
  };
  Words equal = losses_with({"1", "1"});
  EXPECT_EQ(equal.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(losses_with({"1", "4"}), equal);
}

// As torchrun does it: its agent listens at MASTER_PORT and speaks another protocol.
TEST_F(Ranks, BesideTheStoreOfTorchrunsAgent) {
  FileDescriptor agent = listen_on({"127.0.0.1", 0});
  Variables variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RUN_ID", "none"},
                      {"TORCHELASTIC_RESTART_COUNT", "0"},
                      {"TESSERA_JOB_TOKEN", ""}};
  std::vector<pid_t> ranks;
  for (int rank : {0, 1})
    ranks.push_back(start_rank(rank, 2, local_port(agent), job(kGlobalBatch / 2), variables));
  for (pid_t pid : ranks) {
    ProgramResult result = finish(pid);
    EXPECT_EQ(result.status, 0) << result.err;
  }
}

struct Layout {
  std::string name;
  int ranks;
  Words options;
};

class Layouts : public Ranks, public testing::WithParamInterface<Layout> {};
INSTANTIATE_TEST_SUITE_P(
    Each, Layouts,
    testing::Values(
        Layout{"FullShard", 2, {}},
        Layout{"HybridShard", 4, {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}},
        Layout{"TensorParallel", 2, {"--tensor_parallel_degree", "2"}},
        Layout{"Frozen", 2, {"--freeze", "model.embed_tokens.*,*.0.*"}}),
    [](const auto& test) { return test.param.name; });

// Weights drawn by one rank and, piece by piece, by several are the same; a rate of 0 keeps them.
TEST_P(Layouts, GenerateFromEveryRanksPart) {
  auto [name, ranks, options] = GetParam();
  Words untrained{"--lr", "0", "--min_lr", "0", "--max_steps", "1"};
  ProgramResult alone = run(job(kGlobalBatch, untrained + Words{"--checkpoint_dir", "one"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  run_ranks(ranks, job(1, untrained + options + Words{"--checkpoint_dir", "parts"}));
  auto generate = [&](const std::string& folder) {
    ProgramResult result = run({"generate", folder, "--prompt", "the", "--max_new_tokens", "30"});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(generate("parts"), generate("one"));
}

TEST_P(Layouts, ResumeToTheBit) {
  auto [name, ranks, options] = GetParam();
  Words words = job(1, options);
  run_ranks(ranks, words + Words{"--metrics_file", "straight"});
  Words saving{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint", "ckpt"};
  run_ranks(ranks, words + saving + Words{"--max_steps", "5", "--metrics_file", "first"});
  EXPECT_EQ(names("ckpt"), std::set<std::string>{"llama_v2-5steps"});
  run_ranks(ranks, words + saving + Words{"--metrics_file", "second"});
  EXPECT_EQ(losses("first") + losses("second"), losses("straight"));
}

// One run that goes over every mesh: of each step the losses are those of a run on one rank, but
// for the order of sums.
TEST_F(Ranks, ARunGoesOnOnAnyMesh) {
  constexpr int kBatch = 12;
  ProgramResult alone = run(job(kBatch, {"--metrics_file", "one"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  struct Mesh {
    int ranks, data_ranks;
    Words options;
    std::string text;
  };
  int step = 0;
  std::string before;
  for (const Mesh& mesh :
       {Mesh{1, 1, {}, "whole parameters"}, Mesh{2, 2, {}, "shard 2"}, Mesh{3, 3, {}, "shard 3"},
        Mesh{2, 1, {"--tensor_parallel_degree", "2"}, "tp 2"},
        Mesh{4, 4, {"--sharding_strategy", "hybrid_shard", "--shard_degree", "2"}, "shard 2"},
        Mesh{4, 2, {"--tensor_parallel_degree", "2"}, "shard 2 x tp 2"},
        Mesh{2, 2, {"--sharding_strategy", "no_shard"}, "whole parameters"},
        Mesh{1, 1, {}, "whole parameters"}}) {
    SCOPED_TRACE(cat(mesh.ranks, " ranks, ", mesh.text));
    Words words =
        job(kBatch / mesh.data_ranks, Words{"--checkpoint_dir", "ckpt", "--resume_from_checkpoint",
                                            "ckpt", "--metrics_file", "many"} +
                                          mesh.options);
    ProgramResult result = run_ranks(mesh.ranks, words + Words{"--max_steps", cat(++step)});
    if (!before.empty() && before != mesh.text) {
      expect_contains(result.err,
                      cat("It was saved with ", before, ", this run has ", mesh.text, "."));
    }
    before = mesh.text;
  }
  expect_close(losses("many"), losses("one"), 1e-3);
}

TEST_F(Ranks, AgreeOnWhichCheckpointsAreSkipped) {
  Words words = job(1, {"--checkpoint_dir", "ckpt", "--checkpoint_freq", "1", "--async_checkpoint",
                        "on", "--busy_checkpoint", "skip", "--max_steps", "40"});
  ProgramResult result = run_ranks(4, words);
  std::set<std::string> saved = names("ckpt");
  EXPECT_TRUE(saved.contains("llama_v2-40steps"));
  size_t skipped = 0;
  for (size_t at = 0; (at = result.err.find("No checkpoint of step", at)) != std::string::npos;
       ++at)
    ++skipped;
  EXPECT_EQ(saved.size() + skipped, 40u);
}

// Of two lanes, each of another rank, one comes to its end in half the steps.
TEST_F(Ranks, AStreamGoesOnInTheEpochOfAllLanes) {
  std::filesystem::create_directories(path("data"));
  write("data/a.txt", made_up_text(40));
  write("data/b.txt", made_up_text(80));
  constexpr int kAll = 14;
  const Words words = job(2, {"--dataset", "data", "--streaming", "on", "--data_lanes", "2",
                              "--epochs", "9", "--lr_decay_style", "step", "--run_validation", "1",
                              "--validation_dataset", "text.txt", "--validation_batches", "2"});
  // Of each step, and of each validation.
  auto told = [&](const std::string& file) {
    std::vector<std::array<std::string, 3>> all;
    const std::string content = read_file(path(file));
    for (std::string_view line : split(trim(content), '\n')) {
      const auto json = nlohmann::json::parse(line);
      const bool step = json.contains("loss");
      all.push_back({json.at("epoch").dump(), json.at(step ? "loss" : "validation_loss").dump(),
                     step ? json.at("learning_rate").dump() : ""});
    }
    return all;
  };
  run_ranks(2, words + Words{"--max_steps", cat(kAll), "--checkpoint_freq", "1", "--checkpoint_dir",
                             "all", "--metrics_file", "straight"});
  const auto straight = told("straight");
  EXPECT_EQ(straight.size(), kAll + 2u) << "an epoch ends in between";
  EXPECT_EQ(straight.back()[0], "2");
  for (int done = 1; done < kAll - 1; ++done) {
    SCOPED_TRACE(done);
    const std::string file = cat("from", done);
    run_ranks(2, words + Words{"--max_steps", cat(kAll), "--metrics_file", file,
                               "--resume_from_checkpoint", cat("all/llama_v2-", done, "steps")});
    const auto resumed = told(file);
    ASSERT_LE(resumed.size(), straight.size());
    EXPECT_TRUE(std::ranges::equal(resumed, std::span(straight).last(resumed.size())));
    EXPECT_EQ(losses(file).size(), static_cast<size_t>(kAll - done));
  }
}

// Data that one of them cannot read end the job, and no step is lost.
TEST_F(Ranks, SaveWhatTheyHaveLearnedWhereOneCannotReadOn) {
  std::string ids;
  for (int i = 0; i < 4000; ++i) ids += {static_cast<char>('a' + i % 7 + i % 11), '\0'};
  ids[2 * 2000] = ids[2 * 2000 + 1] = '\x7f';
  write("ids.bin", ids);
  std::filesystem::create_directories(path("lanes"));
  std::string lines;
  for (int i = 0; i < 180; ++i)  // behind what is looked at before the first step
    lines += nlohmann::json{{"text", cat(i, " ", made_up_text(400))}}.dump() + "\n";
  write("lanes/a.jsonl", lines);
  write("lanes/b.jsonl", lines + "no JSON\n");
  const std::pair<Words, std::string> kinds[] = {
      {{"--dataset", "ids.bin"}, "ids.bin': token 2000 "},
      {{"--dataset", "lanes", "--streaming", "on", "--data_lanes", "2", "--shuffle_buffer", "2",
        "--packing", "rows"},
       "b.jsonl', line 181: "},
  };
  for (const auto& [words, error] : kinds) {
    const std::string directory = cat("ckpt", words.size());
    const ProgramResult result =
        run(agent(2, job(2, words + Words{"--max_steps", "100000", "--epochs", "100",
                                          "--checkpoint_dir", directory, "--metrics_file",
                                          directory + ".jsonl", "--validation_fraction", "0"})));
    EXPECT_EQ(result.status, 1) << result.err;
    expect_contains(result.err, error);
    const size_t steps = losses(directory + ".jsonl").size();
    EXPECT_GT(steps, 1u);
    EXPECT_EQ(names(directory), std::set{cat("llama_v2-", steps, "steps")}) << result.err;
  }
}

TEST_F(Ranks, OneThatCannotWriteItsPartIsNamedWithItsHost) {
  const ProgramResult result =
      run(agent(2, job(1, {"--hidden_width", "128", "--checkpoint_dir", "ckpt",
                           "--flight_recorder_size", "0", "--distributed_backend", "gloo"})),
          [] {
            const rlimit limit{64 << 10, 64 << 10};
            ::setrlimit(RLIMIT_FSIZE, &limit);
          });
  EXPECT_EQ(result.status, 1);
  expect_contains(result.err,
                  cat("Checkpoint failed: rank 0 on ", host_name(), ": cannot write '"));
}

class RankSignals : public Ranks, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Each, RankSignals, testing::Values(SIGTERM, SIGUSR1),
                         [](const auto& test) { return cat("SIG", ::sigabbrev_np(test.param)); });

TEST_P(RankSignals, ToTheAgentSaveAndTheResumeGoesOn) {
  Words words = agent(2, job(1, {"--epochs", "1000000", "--checkpoint_dir", "ckpt",
                                 "--resume_from_checkpoint", "ckpt"}));
  pid_t pid = start(words + Words{"--max_steps", "1000000", "--metrics_file", "first"});
  wait_for("first", "\"batch\":3,");
  ::kill(pid, GetParam());
  ProgramResult result = finish(pid);
  EXPECT_EQ(result.status, 143) << result.err;
  Words first = losses("first");
  size_t done = first.size();
  expect_contains(result.err, cat("Interrupted after step ", done, "; saved."));
  Words to_the_end{"--max_steps", cat(done + 3), "--metrics_file"};
  ProgramResult second = run(words + to_the_end + Words{"second"});
  EXPECT_EQ(second.status, 0) << second.err;
  run_ranks(2, job(1, {"--epochs", "1000000"}) + to_the_end + Words{"straight"});
  EXPECT_EQ(first + losses("second"), losses("straight"));
}

// Before main() nothing can be done about it: what starts the agent holds it, as the agent does for
// its ranks.
TEST_F(Ranks, ARequestForAReportEndsNothingThatStarts) {
  sigset_t report, before;
  ::sigemptyset(&report);
  ::sigaddset(&report, SIGUSR2);
  ::pthread_sigmask(SIG_BLOCK, &report, &before);
  for (const Words& words : {agent(2, job(1, {"--max_steps", "2"})),
                             Words{"run", "--standalone", "--", "sleep", "0.3"}}) {
    for (int wait : {0, 15, 30, 60}) {
      pid_t pid = start(words);
      std::this_thread::sleep_for(std::chrono::milliseconds(wait));
      ::kill(pid, SIGUSR2);
      const ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << wait << " ms: " << result.err;
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_P(RankSignals, ToOneRankSaveOnAll) {
  Words words = job(1, {"--epochs", "1000000", "--max_steps", "1000000", "--checkpoint_dir", "ckpt",
                        "--metrics_file", "m"});
  int port = free_port();
  std::vector<pid_t> ranks{start_rank(0, 2, port, words), start_rank(1, 2, port, words)};
  wait_for("m", "\"batch\":3,");
  ::kill(ranks[1], GetParam());
  for (pid_t rank : ranks) EXPECT_EQ(finish(rank).status, 143);
  EXPECT_EQ(names("ckpt").size(), 1u);
}

// Far more text than can be tokenized meanwhile, in a small file.
class LongText : public Ranks {
 protected:
  LongText() {
    z_stream z{};
    deflateInit2(&z, 6, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY);
    std::string text;
    while (text.size() < (size_t{2} << 20))
      text += "The quick brown fox jumps over the lazy dog.\n";
    std::string member(deflateBound(&z, text.size()), '\0');
    z.next_in = reinterpret_cast<Bytef*>(text.data());
    z.avail_in = static_cast<uInt>(text.size());
    z.next_out = reinterpret_cast<Bytef*>(member.data());
    z.avail_out = static_cast<uInt>(member.size());
    EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    member.resize(z.total_out);
    deflateEnd(&z);
    std::string all;
    for (int i = 0; i < 1000; ++i) all += member;
    write("long.gz", all);
  }
  Words words() const { return job(1, {"--dataset", "long.gz", "--cache_dir", "cache"}); }
  void wait_for_tokens() {
    for (int i = 0; i < 30'000 && names("cache").empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(names("cache").size(), 1u);
  }
  void expect_given_up(pid_t pid) {
    ProgramResult result = finish(pid);
    EXPECT_EQ(result.status, 143) << result.err;
    expect_contains(result.err, "Interrupted before the first step: there is nothing to save");
    expect_lacks(result.err, "failed");
    EXPECT_EQ(names("cache"), std::set<std::string>{});
  }
};

TEST_F(LongText, TokenizingIsGivenUp) {
  pid_t alone = start(words());
  wait_for_tokens();
  ::kill(alone, SIGINT);
  expect_given_up(alone);
  pid_t two = start(agent(2, words()));
  wait_for_tokens();
  ::kill(two, SIGUSR1);
  expect_given_up(two);
}

TEST_F(LongText, TheRankThatTokenizesHearsOfASignalToAnother) {
  int port = free_port();
  std::vector<pid_t> ranks{start_rank(0, 2, port, words()), start_rank(1, 2, port, words())};
  wait_for_tokens();
  ::kill(ranks[1], SIGTERM);
  for (pid_t rank : ranks) expect_given_up(rank);
}

TEST_F(Ranks, MoreRanksThanCoresIsAWarning) {
  ProgramResult result = run(agent(2, job(2)), [] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
  });
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "2 ranks on 1 core");
}

}  // namespace
}  // namespace tessera
