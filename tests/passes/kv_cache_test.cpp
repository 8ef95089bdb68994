#include "passes/kv_cache.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "ir/verifier.h"
#include "models/build_model.h"
#include "ops/composite/attention.h"
#include "ops/composite/embedding.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "passes/canonicalize.h"
#include "plan/plan.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

constexpr int64_t kTokens = 9, kCapacity = 11;

ModelGraph next_token(int64_t length, int64_t window, int64_t batch = 1) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_width = 24;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 40;
  if (window > 0) config.sliding_window = window;
  return build_model(config, batch, length, ModelHead::kNext);
}

// Logits behind the last of kTokens tokens, which are given in chunks of these lengths.
std::vector<double> in_chunks(int64_t window, const std::vector<int64_t>& lengths) {
  ref::Feeds state;
  std::vector<double> logits;
  int64_t start = 0;
  for (int64_t length : lengths) {
    ModelGraph model = next_token(length, window);
    Graph graph = kv_cache(model.graph, {.capacity = kCapacity});
    verify(graph, "kv_cache");
    ref::Feeds feeds = tiny_feeds(model, graph, {});
    std::vector<double> tokens(feeds["tokens"][0].begin() + start,
                               feeds["tokens"][0].begin() + start + length);
    feeds["tokens"] = {tokens};
    feeds["position"] = {{static_cast<double>(length - 1)}};
    feeds["start"] = {{static_cast<double>(start)}};
    feeds["row"] = {{0}};
    feeds.erase("targets");
    for (const GraphInput& input : graph.inputs()) {
      if (input.kind != InputKind::kState) continue;
      // What is not written yet has no influence.
      feeds[input.name] =
          state.contains(input.name)
              ? state[input.name]
              : std::vector(
                    1, std::vector(static_cast<size_t>(graph.type(input.value).elements()), 1e30));
    }
    ref::Results results = ref::run(graph, feeds);
    for (const auto& [slot, tensors] : results.updates) state[slot] = {tensors[0].data};
    logits = results.outputs.at("logits")[0].data;
    start += length;
  }
  return logits;
}

// Hidden keys add zeros, so even the bits are those of the whole text.
TEST(KvCache, ChunksGiveTheBitsOfTheWholeText) {
  for (int64_t window : {0, 4}) {
    ModelGraph model = next_token(kTokens, window);
    ref::Feeds feeds = tiny_feeds(model, model.graph, {});
    feeds["tokens"][0].resize(kTokens);
    feeds["position"] = {{kTokens - 1}};
    feeds.erase("targets");
    std::vector<double> whole = ref::run(model.graph, feeds).outputs.at("logits")[0].data;
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{9}, {4, 5}, {1, 1, 7}, {8, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}})
      EXPECT_EQ(in_chunks(window, lengths), whole);
  }
}

// Three sequences in the rows of a cache of five, one token of each in a run and now and then one
// sequence alone: each has the logits that it has by itself.
TEST(KvCache, SequencesOfABatchDoNotSeeEachOther) {
  constexpr size_t kSequences = 3, kRows = 5;
  const std::vector<std::vector<double>> texts{
      {7, 1, 36, 4, 9, 9, 2, 11}, {3, 3, 5}, {20, 0, 8, 30, 17}};
  const std::vector<double> rows{4, 0, 2};
  for (int64_t window : {0, 4}) {
    ref::Feeds state;
    auto run = [&](const std::vector<size_t>& which, const std::vector<std::vector<double>>& tokens,
                   const std::vector<size_t>& starts) {
      auto batch = std::ssize(which), n = std::ssize(tokens[0]);
      ModelGraph model = next_token(n, window, batch);
      Graph graph = kv_cache(model.graph, {.capacity = kCapacity, .rows = kRows, .batch = batch});
      verify(graph, "kv_cache");
      ref::Feeds feeds = tiny_feeds(model, graph, {});
      feeds.erase("targets");
      for (const char* name : {"tokens", "position", "start", "row"}) feeds[name] = {{}};
      for (size_t b = 0; b < which.size(); ++b) {
        auto& all = feeds["tokens"][0];
        all.insert(all.end(), tokens[b].begin(), tokens[b].end());
        feeds["position"][0].push_back(static_cast<double>(all.size() - 1));
        feeds["start"][0].push_back(static_cast<double>(starts[b]));
        feeds["row"][0].push_back(rows[which[b]]);
      }
      for (const GraphInput& input : graph.inputs()) {
        if (input.kind != InputKind::kState) continue;
        if (!state.contains(input.name)) {
          auto size = static_cast<size_t>(graph.type(input.value).elements());
          state[input.name] = {std::vector<double>(size, 1e30)};
        }
        feeds[input.name] = state[input.name];
      }
      ref::Results results = ref::run(graph, feeds);
      for (const auto& [slot, tensors] : results.updates) state[slot] = {tensors[0].data};
      return results.outputs.at("logits")[0].data;
    };
    auto part = [&](size_t s, size_t begin, size_t end) {
      return std::vector(texts[s].begin() + static_cast<std::ptrdiff_t>(begin),
                         texts[s].begin() + static_cast<std::ptrdiff_t>(end));
    };
    // What each text gives by itself, at every token.
    auto alone = [&](size_t s, size_t tokens) {
      ref::Feeds kept = std::exchange(state, {});
      std::vector<double> logits = run({s}, {part(s, 0, tokens)}, {0});
      state = kept;
      return logits;
    };
    std::vector<size_t> at{2, 1, 3};  // tokens that went in alone
    for (size_t s = 0; s < kSequences; ++s)
      EXPECT_EQ(run({s}, {part(s, 0, at[s])}, {0}), alone(s, at[s]));
    for (const std::vector<size_t>& which :
         std::vector<std::vector<size_t>>{{0, 1, 2}, {2, 0}, {1}, {0}, {0}, {0}}) {
      std::vector<std::vector<double>> tokens;
      std::vector<size_t> starts;
      for (size_t s : which) {
        tokens.push_back(part(s, at[s], at[s] + 1));
        starts.push_back(at[s]++);
      }
      std::vector<double> logits = run(which, tokens, starts), expected;
      for (size_t s : which) {
        std::vector<double> own = alone(s, at[s]);
        expected.insert(expected.end(), own.begin(), own.end());
      }
      EXPECT_EQ(logits, expected);
    }
  }
}

TEST(KvCache, CachesAreWrittenInPlace) {
  Graph graph = canonicalize(kv_cache(next_token(3, 0).graph, {.capacity = kCapacity, .rows = 4}));
  EXPECT_EQ(graph.updates().size(), 4u);
  EXPECT_EQ(graph.type(graph.input_value("keys.layers.1.attn")).shape, (Shape{4, kCapacity, 2, 6}));
  EXPECT_EQ(count_ops(graph, "attention") + count_ops(graph, "rope"), 0);
  Plan plan = make_plan(graph, {});
  verify_plan(graph, plan);
  EXPECT_EQ(plan.copies, 0) << describe(graph, plan);
}

// Positions that a model looks up go on, too.
TEST(KvCache, NumbersOfTokensGoOn) {
  Graph g;
  Value table = g.input("table", InputKind::kArgument, {{kCapacity, 1}, DType::kF32});
  g.output("y", embedding(g, iota(g, {{2, 3}, DType::kI32}, 1), table));
  Graph graph = kv_cache(g, {.capacity = kCapacity, .rows = 2, .batch = 2});
  verify(graph, "kv_cache");
  std::vector<double> rows(kCapacity);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i * i);
  ref::Results results =
      ref::run(graph, {{"table", {rows}}, {"start", {{5, 0}}}, {"row", {{0, 1}}}});
  EXPECT_EQ(results.outputs.at("y")[0].data, (std::vector<double>{25, 36, 49, 0, 1, 4}));
}

// Numbers without a batch serve one sequence only.
TEST(KvCache, NumbersOfOneSequenceGoOn) {
  Graph g;
  g.output("y", iota(g, {{3}, DType::kI32}, 0));
  Graph graph = kv_cache(g, {.capacity = kCapacity});
  ref::Results results = ref::run(graph, {{"start", {{4}}}, {"row", {{0}}}});
  EXPECT_EQ(results.outputs.at("y")[0].data, (std::vector<double>{4, 5, 6}));
  EXPECT_THROW(kv_cache(g, {.capacity = kCapacity, .rows = 2, .batch = 2}), InternalError);
}

TEST(KvCache, WantsACausalMask) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{1, 3, 2, 4}, DType::kF32});
  g.output("y", attention(g, x, x, x, 0.5, {false, 0}));
  EXPECT_THROW(kv_cache(g, {.capacity = kCapacity}), InternalError);
}

}  // namespace
}  // namespace tessera
