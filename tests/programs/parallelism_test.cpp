#include "programs/parallelism.h"

#include <gtest/gtest.h>

#include "models/build_model.h"
#include "programs/step_costs.h"
#include "tests/options/option_testing.h"
#include "tests/programs/sharding_cells.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

ModelConfig model_with(int64_t heads, int64_t key_value_heads, int64_t columns = 96) {
  ModelConfig c = tiny_model();
  c.hidden_width = 8 * heads;
  c.num_heads = heads;
  c.num_key_value_heads = key_value_heads;
  c.intermediate_size = columns;
  derive_shape(c);
  return c;
}

// By the options as a user gives them, on hosts of four ranks.
Parallelism parallelism(const std::string& options, int64_t world,
                        const ModelConfig& model = model_with(8, 8)) {
  std::vector<std::string> words;
  for (std::string_view word : split(options, ' ')) words.emplace_back(word);
  return make_parallelism(option_testing::parse(words).config, model, world, 4);
}

std::string mesh(const std::string& options, int64_t world,
                 const ModelConfig& model = model_with(8, 8)) {
  return parallelism(options, world, model).to_text();
}

std::string error(const std::string& options, int64_t world,
                  const ModelConfig& model = model_with(8, 8)) {
  return message_of<UsageError>([&] { parallelism(options, world, model); });
}

TEST(Parallelism, StrategiesAndTheirAliases) {
  struct Case {
    std::vector<std::string> spellings;
    std::string mesh;  // of 8 ranks on hosts of 4
    bool regather;
  };
  const std::vector<Case> cases{
      {{"full_shard", "full", "fsdp", "FULL_SHARD"}, "shard 8", true},
      {{"shard_grad_op", "SHARD_GRAD_OP"}, "shard 8", false},
      {{"no_shard", "ddp"}, "replicate 8", false},
      {{"hybrid_shard", "hybrid", "hsdp"}, "replicate 2 x shard 4", true},
      {{"_hybrid_shard_zero2", "hybrid_shard_zero2"}, "replicate 2 x shard 4", false}};
  for (const Case& c : cases) {
    for (const std::string& spelling : c.spellings) {
      Parallelism p = parallelism(cat("--sharding_strategy ", spelling), 8);
      EXPECT_EQ(p.to_text(), c.mesh) << spelling;
      EXPECT_EQ(p.regather, c.regather) << spelling;
    }
  }
  EXPECT_EQ(mesh("--max_steps 1", 8), "shard 8") << "full_shard unless said otherwise";
}

TEST(Parallelism, OneRankHasNoAxes) {
  for (const char* strategy : {"full_shard", "no_shard", "hybrid_shard"}) {
    Parallelism p = parallelism(cat("--sharding_strategy ", strategy), 1);
    EXPECT_EQ(p.to_text(), "one rank");
    EXPECT_FALSE(p.regather);
    EXPECT_EQ(p.mesh, Mesh());
  }
}

TEST(Parallelism, ShardDegrees) {
  for (const char* strategy : {"full_shard", "shard_grad_op", "hybrid_shard"}) {
    SCOPED_TRACE(strategy);
    auto with = [&](const std::string& degree) {
      return mesh(cat("--sharding_strategy ", strategy, " --shard_degree ", degree), 8);
    };
    std::string by_strategy = mesh(cat("--sharding_strategy ", strategy), 8);
    EXPECT_EQ(with("none"), by_strategy);
    EXPECT_EQ(with("0"), by_strategy);
    EXPECT_EQ(with("1"), "replicate 8");
    EXPECT_EQ(with("2"), "replicate 4 x shard 2");
    EXPECT_EQ(with("4"), "replicate 2 x shard 4");
    EXPECT_EQ(with("8"), "shard 8");
  }
  Parallelism one = parallelism("--shard_degree 1", 8);
  EXPECT_FALSE(one.regather) << "nothing to gather";
  EXPECT_EQ(mesh("--sharding_strategy no_shard --shard_degree 1", 8), "replicate 8");
}

TEST(Parallelism, HybridShardsWithinAHost) {
  auto hybrid = [](int64_t world, int64_t tp = 1) {
    return mesh(cat("--sharding_strategy hybrid_shard --tensor_parallel_degree ", tp), world);
  };
  EXPECT_EQ(hybrid(2), "shard 2");
  EXPECT_EQ(hybrid(4), "shard 4");
  EXPECT_EQ(hybrid(12), "replicate 3 x shard 4");
  EXPECT_EQ(hybrid(6), "replicate 3 x shard 2") << "ranks that no host divides";
  EXPECT_EQ(hybrid(3), "replicate 3");
  EXPECT_EQ(hybrid(16, 2), "replicate 4 x shard 2 x tp 2");
  EXPECT_EQ(hybrid(16, 4), "replicate 4 x tp 4") << "a tensor-parallel group fills a host";
  EXPECT_EQ(hybrid(16, 8), "replicate 2 x tp 8") << "... or several";
}

TEST(Parallelism, HybridGroupsBelowAHostAreToldOf) {
  auto warning = [](const std::string& options, int64_t world, int64_t ranks_per_host) {
    std::vector<std::string> words{"--sharding_strategy=hybrid_shard"};
    for (std::string_view word : split(options, ' ')) words.emplace_back(word);
    return shard_group_warning(option_testing::parse(words).config, world, ranks_per_host);
  };
  EXPECT_EQ(warning("--max_steps 1", 7, 2),
            "--sharding_strategy hybrid_shard: a host has 2 data-parallel ranks, which do not "
            "divide 7, those of all hosts, so nothing is sharded, and parameters are replicated "
            "over all; give hosts equal numbers of ranks, or --shard_degree, one of 1, 7");
  expect_contains(warning("--max_steps 1", 6, 4), "so parameters are sharded over groups of 2;");
  expect_contains(warning("--max_steps 1", 3, 1), "has one data-parallel rank only, so nothing");
  EXPECT_EQ(warning("--max_steps 1", 8, 4), "");
  EXPECT_EQ(warning("--max_steps 1", 4, 8), "") << "all on one host";
  EXPECT_EQ(warning("--tensor_parallel_degree 2", 16, 4), "");
  EXPECT_EQ(warning("--tensor_parallel_degree 8", 8, 4), "") << "nothing is left to shard";
  EXPECT_EQ(warning("--shard_degree 1", 7, 2), "") << "as was asked";
  EXPECT_EQ(warning("--sharding_strategy full_shard", 7, 2), "");
}

TEST(Parallelism, AxesAreForWhatTheyAreCalled) {
  Parallelism p = parallelism("--shard_degree 2 --tensor_parallel_degree 2", 8);
  EXPECT_EQ(p.to_text(), "replicate 2 x shard 2 x tp 2");
  EXPECT_EQ(p.state_text(), "shard 2 x tp 2");
  EXPECT_EQ(p.mesh.to_string(p.data.shard), "{shard}");
  EXPECT_EQ(p.mesh.to_string(p.data.replicate), "{replicate}");
  EXPECT_EQ(p.mesh.to_string(p.tp.all), "{tp}");
  EXPECT_EQ(p.mesh.to_string(p.tp.kv_heads), "{tp}");
  EXPECT_EQ(p.data_ranks(), 4);
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(p.data_rank(rank), rank / 2);
  EXPECT_EQ(parallelism("--sharding_strategy no_shard", 4).state_text(), "whole parameters");
}

TEST(Parallelism, MoreRanksThanKeyValueHeadsShareThem) {
  auto axes = [](int64_t tp, int64_t key_value_heads) {
    Parallelism p =
        parallelism(cat("--tensor_parallel_degree ", tp), tp, model_with(8, key_value_heads));
    return cat(p.to_text(), ", ", p.mesh.to_string(p.tp.all), ", ",
               p.mesh.to_string(p.tp.kv_heads));
  };
  EXPECT_EQ(axes(4, 8), "tp 4, {tp}, {tp}");
  EXPECT_EQ(axes(4, 4), "tp 4, {tp}, {tp}");
  EXPECT_EQ(axes(4, 2), "tp 2 x tp_shared 2, {tp, tp_shared}, {tp}");
  EXPECT_EQ(axes(4, 1), "tp_shared 4, {tp_shared}, {}");
  EXPECT_EQ(axes(8, 2), "tp 2 x tp_shared 4, {tp, tp_shared}, {tp}");
}

TEST(Parallelism, TheSequenceIsCutWhereItDivides) {
  auto cut = [](int64_t tp, int64_t length) {
    return parallelism(cat("--tensor_parallel_degree ", tp, " --max_context_width ", length), 4)
        .sequence_parallel;
  };
  EXPECT_FALSE(cut(1, 8));
  EXPECT_TRUE(cut(2, 8));
  EXPECT_FALSE(cut(2, 7));
  EXPECT_FALSE(cut(4, 6));
}

TEST(Parallelism, OtherOptions) {
  EXPECT_EQ(parallelism("--max_steps 1", 2).reduce_dtype, DType::kF32);
  EXPECT_EQ(parallelism("--reduce_dtype bf16", 2).reduce_dtype, DType::kBF16);
  EXPECT_FALSE(parallelism("--max_steps 1", 2).unsharded_accumulation);
  EXPECT_TRUE(parallelism("--unsharded_accumulation 1", 2).unsharded_accumulation);
}

TEST(Parallelism, ErrorsNameTheOptionAndWhatWouldDo) {
  EXPECT_EQ(error("--tensor_parallel_degree 3", 8),
            "--tensor_parallel_degree 3 does not divide the world of 8: give 1, 2, 4, 8");
  EXPECT_EQ(error("--tensor_parallel_degree 16", 8),
            "--tensor_parallel_degree 16 does not divide the world of 8: give 1, 2, 4, 8");
  EXPECT_EQ(error("--tensor_parallel_degree 4", 6),
            "--tensor_parallel_degree 4 does not divide the world of 6: give 1, 2")
      << "what divides the world and not the model is no help";
  EXPECT_EQ(error("--shard_degree 3", 8),
            "--shard_degree 3 does not divide the world of 8: give 1, 2, 4, 8");
  EXPECT_EQ(error("--shard_degree 8 --tensor_parallel_degree 2", 8),
            "--shard_degree 8 does not divide the data-parallel ranks (world / "
            "tensor_parallel_degree) 4: give 1, 2, 4");
  EXPECT_EQ(error("--sharding_strategy no_shard --shard_degree 4", 8),
            "--shard_degree 4 and --sharding_strategy no_shard contradict each other: leave one of "
            "them out");
  EXPECT_EQ(error("--tensor_parallel_degree 4", 4, model_with(6, 6)),
            "--tensor_parallel_degree 4 does not divide the 6 heads (num_heads) of the model");
  EXPECT_EQ(error("--tensor_parallel_degree 4", 4, model_with(8, 8, 90)),
            "--tensor_parallel_degree 4 does not divide the 90 columns of the MLP "
            "(intermediate_size) of the model");
  EXPECT_EQ(error("--tensor_parallel_degree 4", 4, model_with(12, 6)),
            "--tensor_parallel_degree 4 and the 6 key/value heads of the model: one must divide "
            "the other");
}

TEST(Parallelism, ErrorsOfValuesThatAreNone) {
  auto usage = [](const std::vector<std::string>& words) {
    return message_of<UsageError>([&] { option_testing::parse(words); });
  };
  expect_contains(usage({"--tensor_parallel_degree", "0"}), "--tensor_parallel_degree");
  expect_contains(usage({"--shard_degree=-1"}), "--shard_degree");
  expect_contains(usage({"--world", "0"}), "--world");
  std::string strategy = usage({"--sharding_strategy", "zero3"});
  for (const char* known : {"zero3", "full_shard", "hybrid_shard", "no_shard"})
    expect_contains(strategy, known);
}

// The cells of the sharding tests that are left out, all of them, by their error.
TEST(Parallelism, ImpossibleMeshesSayWhy) {
  std::map<std::string, int> cells;
  for (const auto& [name, message] : impossible_meshes()) ++cells[message];
  const std::map<std::string, int> expected{
      {"--shard_degree 2 and --sharding_strategy no_shard contradict each other: leave one of them "
       "out",
       12},
      {"--shard_degree 2 does not divide the data-parallel ranks (world / tensor_parallel_degree) "
       "1: give 1",
       8},
      {"--shard_degree 2 does not divide the data-parallel ranks (world / tensor_parallel_degree) "
       "3: give 1, 3",
       4},
      {"--shard_degree 2 does not divide the world of 1: give 1", 4},
      {"--shard_degree 2 does not divide the world of 3: give 1, 3", 4},
      {"--shard_degree 3 and --sharding_strategy no_shard contradict each other: leave one of them "
       "out",
       12},
      {"--shard_degree 3 does not divide the data-parallel ranks (world / tensor_parallel_degree) "
       "1: give 1",
       8},
      {"--shard_degree 3 does not divide the data-parallel ranks (world / tensor_parallel_degree) "
       "2: give 1, 2",
       8},
      {"--shard_degree 3 does not divide the data-parallel ranks (world / tensor_parallel_degree) "
       "4: give 1, 2, 4",
       4},
      {"--shard_degree 3 does not divide the world of 1: give 1", 4},
      {"--shard_degree 3 does not divide the world of 2: give 1, 2", 4},
      {"--shard_degree 3 does not divide the world of 4: give 1, 2, 4", 4},
      {"--shard_degree 3 does not divide the world of 8: give 1, 2, 4, 8", 4},
      {"--tensor_parallel_degree 2 does not divide the world of 1: give 1", 15},
      {"--tensor_parallel_degree 2 does not divide the world of 3: give 1", 15},
      {"--tensor_parallel_degree 4 does not divide the world of 1: give 1", 15},
      {"--tensor_parallel_degree 4 does not divide the world of 2: give 1, 2", 15},
      {"--tensor_parallel_degree 4 does not divide the world of 3: give 1", 15},
      {"--tensor_parallel_degree 4 does not divide the world of 6: give 1, 2", 15}};
  EXPECT_EQ(cells, expected);
}

// What a token costs the model is not a matter of how many ranks it is computed on; the logits that
// the backward pass of a loss over parts of the vocabulary forms again are told apart.
TEST(Parallelism, FlopsOfATokenDoNotDependOnTheTensorDegree) {
  ModelConfig model = tiny_model();
  model.vocab_size = 4096;
  model.hidden_width = model.intermediate_size = 256;
  model.num_key_value_heads = 4;
  derive_shape(model);
  struct Flops {
    double own, again;  // of all ranks
  };
  auto flops = [&](const std::string& options, double ranks) {
    RunConfig config =
        option_testing::parse({"--max_context_width", "32", "--activation_checkpointing", "0",
                               "--tensor_parallel_degree", options})
            .config;
    const Programs programs = build_programs(
        model_builder(model),
        program_options(config, make_parallelism(config, model, static_cast<int64_t>(ranks), 8)));
    return Flops{ranks * program_flops(programs.accumulate_first),
                 ranks * recomputed_flops(programs.accumulate_first)};
  };
  const Flops one = flops("1", 1);
  EXPECT_EQ(one.again, 0);
  const RunConfig config;
  const double head = 2.0 * 32 * 256 * 4096 * static_cast<double>(config.train_batch_size);
  for (const char* degree : {"2", "4"}) {
    const Flops parts = flops(degree, std::stod(degree));
    EXPECT_NEAR(parts.own / one.own, 1, 0.01) << degree;
    EXPECT_EQ(parts.again, head) << degree;
  }
}

}  // namespace
}  // namespace tessera
