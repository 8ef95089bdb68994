#include "planning/host_memory.h"

#include "planning/plan_report.h"
#include "profile/speed_of_light.h"
#include "tests/data/packed_text.h"
#include "tests/train/training_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = 1 << 20;

RankMemory rank(int64_t planned, std::vector<MemoryPool> pools) {
  return {planned * kMiB, 10 * kMiB, std::move(pools)};
}

TEST(HostMemory, RanksOfAHostDrawFromOnePool) {
  MemoryPool host{"machine a", "this machine (MemAvailable)", 1000 * kMiB};
  MemoryPool other{"machine b", "this machine (MemAvailable)", 500 * kMiB};
  // Two hosts: each has enough for its own.
  EXPECT_FALSE(find_shortage(std::vector{rank(900, {host}), rank(400, {other})}));
  EXPECT_TRUE(find_shortage(std::vector{rank(400, {host}), rank(900, {other})}));
  auto shortage = find_shortage(std::vector{rank(600, {host}), rank(400, {host})});
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->ranks, 2);
  EXPECT_EQ(shortage->need, 1020 * kMiB);
  EXPECT_EQ(shortage->planned_each, 490 * kMiB);
  EXPECT_EQ(shortage->text,
            "2 ranks need 1020.0 MiB (1000.0 MiB planned and about 20.0 MiB beside), and this "
            "machine (MemAvailable) has 1000.0 MiB left");
}

TEST(HostMemory, TheSmallestOfNestedPoolsDecides) {
  MemoryPool host{"m", "machine", 9000 * kMiB}, job{"j", "cgroup /job", 500 * kMiB},
      step{"s", "cgroup /job/step", 800 * kMiB};
  auto shortage = find_shortage(std::vector{rank(900, {host, step, job})});
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->pool, "cgroup /job");
  EXPECT_FALSE(find_shortage(std::vector{rank(490, {host, step, job})}));
}

TEST(HostMemory, PoolsWithoutAnIdentityAreOfOneRankEach) {
  MemoryPool own{"", "ulimit", 500 * kMiB};
  EXPECT_FALSE(find_shortage(std::vector{rank(400, {own}), rank(400, {own})}));
  EXPECT_TRUE(find_shortage(std::vector{rank(400, {own}), rank(495, {own})}));
}

TEST(HostMemory, WhatIsNotKnownIsNoShortage) {
  EXPECT_FALSE(find_shortage(std::vector{rank(1 << 20, {}), rank(1 << 20, {})}));
}

TEST(HostMemory, TravelsAsText) {
  RankMemory sent = rank(7, {{"", "a b", 1}, {"cgroup 1:2 memory.max", "cgroup /x y", 0}});
  RankMemory got = RankMemory::from_text(sent.to_text());
  EXPECT_EQ(got.to_text(), sent.to_text());
  EXPECT_EQ(got.planned, 7 * kMiB);
  ASSERT_EQ(got.pools.size(), 2u);
  EXPECT_EQ(got.pools[0].id, "");
  EXPECT_EQ(got.pools[1].name, "cgroup /x y");
}

class HostMemoryRun : public TrainingTest {
 protected:
  // A host with so much left, in a cgroup with so much.
  void host(int64_t available, const std::string& limit) {
    for (const char* folder : {"host/proc/self", "host/sys/fs/cgroup/job"})
      make_directories(path(folder));
    write("host/proc/meminfo", cat("MemAvailable: ", available / 1024, " kB\n"));
    write("host/proc/self/cgroup", "0::/job\n");
    write("host/proc/self/mountinfo", "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("host/sys/fs/cgroup/job/memory.max", limit + "\n");
    write("host/sys/fs/cgroup/job/memory.current", "4096\n");
    set_system_root(path("host"));
  }
};

TEST_F(HostMemoryRun, ARunThatDoesNotFitIsRefusedBeforeAnythingIsMade) {
  RunConfig config = options(2);
  config.activation_checkpointing = false;
  for (bool of_cgroup : {false, true}) {
    host(of_cgroup ? 9000 * kMiB : 9 * kMiB, of_cgroup ? cat(8 * kMiB + 4096) : "max");
    std::string message = failure(config);
    expect_contains(message, "not enough memory: a rank needs ");
    expect_contains(message, of_cgroup ? "cgroup /job (memory.max) has 8.00 MiB left"
                                       : "this machine (MemAvailable) has 9.00 MiB left");
    expect_contains(message, "--memory BYTES");
    EXPECT_FALSE(std::filesystem::exists(path("cache")));
    EXPECT_FALSE(std::filesystem::exists(path("ckpt")));
  }
  config.eval_only = true;
  expect_contains(failure(config), "not enough memory");
}

TEST_F(HostMemoryRun, TheErrorNamesWhatWouldFit) {
  RunConfig config = options(2);
  config.max_context_width = 1024;
  config.train_batch_size = 16;
  config.activation_checkpointing = false;
  auto planned = [&](int64_t batch) {
    RunConfig c = config;
    c.train_batch_size = batch;
    cpu::CpuBackend backend(2, cpu::detect_isa());
    Parallelism parallelism = make_parallelism(c, tiny_model(), 1, 1);
    Session session(build_programs(model_builder(tiny_model()), program_options(c, parallelism)),
                    backend);
    return session.planned_memory().total();
  };
  int64_t between = (planned(8) + planned(16)) / 2;
  host(between + memory_beside_plan(config, between, 2), "max");
  std::string message = failure(config);
  expect_contains(message,
                  "what would fit: --train_batch_size 8 --gradient_accumulation_steps 2 plans ");
  expect_contains(message, "; --activation_checkpointing True ");
  expect_contains(message, " % more FLOP");
}

TEST_F(HostMemoryRun, TheErrorSaysFirstThatCheckpointsCanDoWithout) {
  RunConfig config = options(1);
  cpu::CpuBackend backend(2, cpu::detect_isa());
  Parallelism parallelism = make_parallelism(config, tiny_model(), 1, 1);
  Session session(build_programs(model_builder(tiny_model()), program_options(config, parallelism)),
                  backend);
  const Session::Memory memory = session.planned_memory();
  const int64_t planned = memory.total() + memory.parameters / 2;
  host(planned + memory_beside_plan(config, planned, 2), "max");
  config.async_checkpoint = "on";
  expect_contains(failure(config), " left; --async_checkpoint auto needs ");
  config.async_checkpoint = "auto";
  EXPECT_EQ(train(config).steps, 1);
}

TEST_F(HostMemoryRun, LanesOfAStreamAreCounted) {
  RunConfig config = options(2);
  EXPECT_EQ(memory_of_lanes(config, 1, 0), (288 + 32) * kMiB);
  EXPECT_EQ(memory_of_lanes(config, 4, 0), (72 + 32) * kMiB);
  EXPECT_EQ(memory_of_lanes(config, 5, 0), (288 + 32) * kMiB) << "each rank reads all";
  EXPECT_EQ(memory_of_lanes(config, 4, kMiB), (96 + 36) * kMiB);
  host(150 * kMiB, "max");
  EXPECT_EQ(train(config).steps, 2);
  config.checkpoint_dir.clear();
  config.streaming = "on";
  expect_contains(failure(config), "not enough memory: a rank needs ");
  config.data_lanes = 2;
  EXPECT_EQ(train(config).steps, 2);
}

TEST_F(HostMemoryRun, LanesHaveTheWindowsOfWhatIsPacked) {
  RunConfig config = options(2);
  config.checkpoint_dir.clear();
  config.streaming = "on";
  config.data_lanes = 4;
  config.data_num_workers = 1;
  config.validation_fraction = 0;  // no file is held out
  const std::string window_of_32_mib = xz(made_up_text(800), SIZE_MAX, 32 * kMiB);
  for (const char* name : {"small", "large"}) std::filesystem::create_directory(path(name));
  write("small/1.txt.xz", window_of_32_mib);
  write("large/1.txt.xz", window_of_32_mib);
  write("large/2.txt", made_up_text(2'000'000));
  host(150 * kMiB, "max");
  config.dataset = path("small");  // which uses little of its window
  EXPECT_EQ(train(config).steps, 2);
  config.dataset = path("large");
  const std::string message = failure(config);
  expect_contains(message, "not enough memory: a rank needs ");
  const int64_t lanes = memory_of_lanes(config, 1, reading_bytes_here(config));
  EXPECT_GT(lanes, 5 * 32 * kMiB);
  expect_contains(message, cat("; lanes of the stream take ", format_bytes(lanes),
                               " of it, fewer --data_lanes less; "));
  config.data_lanes = 1;
  EXPECT_EQ(train(config).steps, 2);

  // As a plan says.
  cpu::CpuBackend backend(1, cpu::detect_isa());
  auto verdict = [&] {
    return plan_report(config, tiny_model(), {.backend = &backend}, path("host"),
                       reading_bytes_here(config))
        .text;
  };
  expect_contains(verdict(), "Fits on this machine: a rank needs ");
  config.data_lanes = 4;
  expect_contains(verdict(), "Does not fit on this machine: a rank needs ");
  config.validation_fraction = 0.5;  // the large one is not read by lanes
  expect_contains(verdict(), "Fits on this machine: a rank needs ");
  config.dataset = path("not_there.xz");
  expect_contains(verdict(), "Fits on this machine: a rank needs ");
}

TEST_F(HostMemoryRun, WhatComparesAndMeasuresIsCounted) {
  RunConfig config = options(2);
  const int64_t plain = memory_beside_plan(config, 0, 2);
  config.use_profiler = true;
  EXPECT_EQ(memory_beside_plan(config, 0, 2), plain + SpeedOfLight::kCopiedBytes);
  config.use_profiler = false;

  write("held_out.txt", made_up_text(300, 5));
  config.checkpoint_dir.clear();
  config.validation_dataset = path("held_out.txt");
  const std::string text = made_up_text(800);
  // Bytes are tokens; one more ends the document.
  const auto baselines = static_cast<int64_t>(text.size() + 1) * 8;
  cpu::CpuBackend backend(2, cpu::detect_isa());
  Parallelism parallelism = make_parallelism(config, tiny_model(), 1, 1);
  Session session(build_programs(model_builder(tiny_model()), program_options(config, parallelism)),
                  backend);
  const int64_t planned = session.planned_memory().total();
  const int64_t need = planned + memory_beside_plan(config, planned, 2);
  host(9000 * kMiB, cat(need + 4096 + baselines - 1));
  EXPECT_EQ(train(config).steps, 2);
  config.compare_baselines = true;
  expect_contains(failure(config),
                  cat("; --compare_baselines takes ", format_bytes(baselines), " of it; "));
  host(9000 * kMiB, cat(need + 4096 + baselines));
  EXPECT_EQ(train(config).steps, 2);
}

TEST_F(HostMemoryRun, ABudgetThatIsTooSmallSaysWhatWouldFit) {
  RunConfig config = options(2);
  ModelConfig model = tiny_model();
  model.vocab_size = 20'000;  // the state is most of it
  config.train_batch_size = config.val_batch_size = 1;
  config.memory = 18 * kMiB;
  const std::string message = failure(config, model);
  expect_contains(message, " more than --memory 18.0 MiB: what would fit: ");
  expect_contains(message, "--cpu_offload True plans ");
  expect_contains(message, " of a host");
  expect_contains(message, "on 2 ranks plans ");
  expect_lacks(message, "--world");
  config.memory = 1;
  expect_contains(failure(config, model),
                  "1 B: no other batch of training or validation, recomputation, sharding, offload "
                  "or number of ranks makes it fit: take a smaller model or window");
}

TEST_F(HostMemoryRun, ABudgetOfTheUserOrNoAnswerIsNoRefusal) {
  RunConfig config = options(1);
  config.save_ckpt = false;
  host(9 * kMiB, "max");
  config.memory = 100 * kMiB;
  RunTrace trace = train(config);
  EXPECT_EQ(trace.steps, 1);
  EXPECT_EQ(lines_with(trace.log, "going on, as --memory is given").size(), 1u);
  config.streaming = "on";  // what lanes take of packed text is known behind the first look alone
  config.data_lanes = 1;
  config.dataset = path("packed.txt.xz");
  write("packed.txt.xz", xz(made_up_text(800), SIZE_MAX, 32 * kMiB));
  trace = train(config);
  EXPECT_EQ(trace.steps, 1);
  EXPECT_EQ(lines_with(trace.log, "going on, as --memory is given").size(), 1u);
  config.streaming = RunConfig().streaming;
  config.memory.reset();
  set_system_root(path("nowhere"));
  EXPECT_EQ(train(config).steps, 1);
}

TEST_F(HostMemoryRun, APlanWithoutABudgetIsHeldAgainstThisMachine) {
  RunConfig config = options(1);
  cpu::CpuBackend backend(1, cpu::detect_isa());
  auto report = [&] {
    return plan_report(config, tiny_model(), {.backend = &backend}, path("host"));
  };
  host(900 * kMiB, "max");
  expect_contains(report().text, "Fits on this machine: a rank needs ");
  host(500 * kMiB, "max");
  config.world = 64;
  config.ranks_per_host = 32;
  PlanReport large = report();
  expect_contains(large.text, "Does not fit on this machine: 32 ranks need ");
  EXPECT_TRUE(large.fits);  // the machine for which it is planned may be another
  config.device_type = "cuda";
  expect_lacks(report().text, "this machine");
  config.device_type = "cpu";
  config.memory = 900 * kMiB;
  expect_lacks(report().text, "this machine");
}

TEST_F(HostMemoryRun, OneOfTheRanksWithTheSameStateHasACopyThatIsWritten) {
  RunConfig config = options(1);
  config.world = config.ranks_per_host = 8;
  config.sharding_strategy = "no_shard";
  config.device_type = "cpu";
  ModelConfig model = tiny_model();
  model.vocab_size = 100'000;
  cpu::CpuBackend backend(1, cpu::detect_isa());
  host(100'000 * kMiB, "max");
  auto need = [&](const char* async_checkpoint) {
    config.async_checkpoint = async_checkpoint;
    const std::string text = plan_report(config, model, {.backend = &backend}, path("host")).text;
    expect_contains(text, "8 ranks need ");
    return std::stod(text.substr(text.find("8 ranks need ") + 13));
  };
  const double without = need("auto"), with = need("on");
  EXPECT_GT(with, without);
  EXPECT_LT(with, 1.1 * without);
}

}  // namespace
}  // namespace tessera
