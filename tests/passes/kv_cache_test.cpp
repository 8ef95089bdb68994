#include "passes/kv_cache.h"

#include <gtest/gtest.h>

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

ModelGraph next_token(int64_t length, int64_t window) {
  ModelConfig config;
  config.vocab_size = 37;
  config.hidden_width = 24;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;
  config.intermediate_size = 40;
  if (window > 0) config.sliding_window = window;
  return build_model(config, 1, length, ModelHead::kNext);
}

// Logits behind the last of kTokens tokens, which are given in chunks of these lengths.
std::vector<double> in_chunks(int64_t window, const std::vector<int64_t>& lengths) {
  ref::Feeds state;
  std::vector<double> logits;
  int64_t start = 0;
  for (int64_t length : lengths) {
    ModelGraph model = next_token(length, window);
    Graph graph = kv_cache(model.graph, kCapacity);
    verify(graph, "kv_cache");
    ref::Feeds feeds = tiny_feeds(model, graph, {});
    std::vector<double> tokens(feeds["tokens"][0].begin() + start,
                               feeds["tokens"][0].begin() + start + length);
    feeds["tokens"] = {tokens};
    feeds["position"] = {{static_cast<double>(length - 1)}};
    feeds["start"] = {{static_cast<double>(start)}};
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

TEST(KvCache, CachesAreWrittenInPlace) {
  Graph graph = canonicalize(kv_cache(next_token(3, 0).graph, kCapacity));
  EXPECT_EQ(graph.updates().size(), 4u);
  EXPECT_EQ(graph.type(graph.input_value("keys.layers.1.attn")).shape, (Shape{1, kCapacity, 2, 6}));
  EXPECT_EQ(count_ops(graph, "attention") + count_ops(graph, "rope"), 0);
  Plan plan = make_plan(graph, {});
  verify_plan(graph, plan);
  EXPECT_EQ(plan.copies, 0) << describe(graph, plan);
}

// Positions that a model looks up go on, too.
TEST(KvCache, NumbersOfTokensGoOn) {
  Graph g;
  Value table = g.input("table", InputKind::kArgument, {{kCapacity, 1}, DType::kF32});
  g.output("y", embedding(g, iota(g, {{1, 3}, DType::kI32}, 1), table));
  Graph graph = kv_cache(g, kCapacity);
  verify(graph, "kv_cache");
  std::vector<double> rows(kCapacity);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<double>(i * i);
  ref::Results results = ref::run(graph, {{"table", {rows}}, {"start", {{5}}}});
  EXPECT_EQ(results.outputs.at("y")[0].data, (std::vector<double>{25, 36, 49}));
}

TEST(KvCache, WantsACausalMask) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{1, 3, 2, 4}, DType::kF32});
  g.output("y", attention(g, x, x, x, 0.5, {false, 0}));
  EXPECT_THROW(kv_cache(g, kCapacity), InternalError);
}

}  // namespace
}  // namespace tessera
