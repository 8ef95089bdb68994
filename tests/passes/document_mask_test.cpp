#include "passes/document_mask.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/ignore_index.h"
#include "base/random.h"
#include "ir/verifier.h"
#include "models/build_model.h"
#include "models/model_family.h"
#include "ops/composite/attention.h"
#include "ops/primitive/shaping.h"
#include "passes/kv_cache.h"
#include "tests/base/error_expectation.h"
#include "tests/passes/tiny_llama.h"

namespace tessera {
namespace {

constexpr int64_t kTokens = 11;
const std::vector<int64_t> kLengths{4, 1, 6};

std::vector<ModelConfig> models() {
  std::vector<ModelConfig> models;
  for (ModelType type : {ModelType::kLlamaV2, ModelType::kMistral, ModelType::kQwen3,
                         ModelType::kGpt2, ModelType::kGptNeox}) {
    ModelConfig c = family_defaults(type);
    c.vocab_size = 37;
    c.hidden_width = 24;
    c.num_layers = 2;
    c.num_heads = 4;
    const bool grouped = type != ModelType::kGpt2 && type != ModelType::kGptNeox;
    c.num_key_value_heads = grouped ? 2 : 4;
    c.head_dim = 6;
    c.intermediate_size = 40;
    c.max_context_width = 16;
    c.bias = true;
    if (type == ModelType::kMistral) c.sliding_window = 3;
    models.push_back(c);
  }
  return models;
}

std::vector<double> ids_of(const char* stream, int64_t count) {
  std::vector<double> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(
        static_cast<double>(random_below(1, stream_of(stream), static_cast<uint64_t>(i), 37)));
  return ids;
}

// The documents in one row, and where each begins.
struct Packed {
  std::vector<double> tokens = ids_of("tokens", kTokens), targets = ids_of("targets", kTokens);
  std::vector<double> starts;
  Packed() {
    for (int64_t length : kLengths)
      starts.insert(starts.end(), static_cast<size_t>(length), static_cast<double>(starts.size()));
  }
};
// Each in a row of its own, with other tokens behind it.
struct Apart {
  std::vector<double> tokens, targets;
  Apart() {
    Packed packed;
    auto begin = packed.tokens.begin();
    auto target = packed.targets.begin();
    for (int64_t length : kLengths) {
      tokens.insert(tokens.end(), begin, begin + length);
      targets.insert(targets.end(), target, target + length);
      tokens.insert(tokens.end(), static_cast<size_t>(kTokens - length), 5);
      targets.insert(targets.end(), static_cast<size_t>(kTokens - length), kIgnoreIndex);
      begin += length;
      target += length;
    }
  }
};

ref::Feeds feeds_of(const ModelGraph& model, const Graph& graph, const auto& rows) {
  ref::Feeds feeds = tiny_feeds(model, graph, {});
  feeds["tokens"] = {rows.tokens};
  feeds["targets"] = {rows.targets};
  return feeds;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Logits of the documents' tokens in their order, whichever way they are given.
std::vector<double> logits_packed(const ModelConfig& c, bool masked) {
  ModelGraph model = build_model(c, 1, kTokens, ModelHead::kLogits);
  Graph graph = masked ? document_mask(model.graph) : model.graph;
  verify(graph, "document_mask");
  Packed packed;
  ref::Feeds feeds = feeds_of(model, graph, packed);
  if (masked) feeds[kDocumentStarts] = {packed.starts};
  return ref::run(graph, feeds).outputs.at("logits")[0].data;
}
std::vector<double> logits_apart(const ModelConfig& c) {
  const int64_t rows = std::ssize(kLengths);
  ModelGraph model = build_model(c, rows, kTokens, ModelHead::kLogits);
  std::vector<double> all =
      ref::run(model.graph, feeds_of(model, model.graph, Apart())).outputs.at("logits")[0].data;
  std::vector<double> logits;
  for (int64_t row = 0; row < rows; ++row) {
    auto begin = all.begin() + row * kTokens * c.vocab_size;
    logits.insert(logits.end(), begin, begin + kLengths[static_cast<size_t>(row)] * c.vocab_size);
  }
  return logits;
}

TEST(DocumentMask, LogitsAreThoseOfDocumentsInRowsOfTheirOwn) {
  for (const ModelConfig& c : models()) {
    SCOPED_TRACE(name(c.model_type));
    const std::vector<double> apart = logits_apart(c);
    EXPECT_LT(largest_difference(logits_packed(c, true), apart), 1e-5);
    EXPECT_GT(largest_difference(logits_packed(c, false), apart), 1e-2);
  }
}

// A row that is one document: the graph has an argument more and gives the same bits.
TEST(DocumentMask, OneDocumentToARowChangesNothing) {
  for (const ModelConfig& c : models()) {
    SCOPED_TRACE(name(c.model_type));
    ModelGraph model = build_model(c, 2, 7, ModelHead::kLoss);
    Graph graph = document_mask(model.graph);
    ref::Feeds feeds = tiny_feeds(model, graph, {});
    feeds[kDocumentStarts] = {std::vector<double>(14, 0)};
    EXPECT_EQ(difference(ref::run(graph, feeds), ref::run(model.graph, feeds)), "");
  }
}

TEST(DocumentMask, IsOnlyForCausalAttentionAndForWholeRows) {
  Graph g;
  g.input("tokens", InputKind::kArgument, {{1, 4}, DType::kI32});
  Value x = g.input("x", InputKind::kArgument, {{1, 4, 1, 2}, DType::kF32});
  g.output("y", attention(g, x, x, x, 1, {.causal = false}));
  EXPECT_THROW(document_mask(g), InternalError);

  Graph numbers;  // once for all rows
  numbers.input("tokens", InputKind::kArgument, {{1, 4}, DType::kI32});
  numbers.output("y", iota(numbers, {{4}, DType::kI32}, 0));
  EXPECT_THROW(document_mask(numbers), InternalError);

  ModelGraph model = tiny_llama();
  EXPECT_THROW(kv_cache(document_mask(model.graph), {.capacity = 9, .batch = 2}), InternalError);
}

TEST(DocumentMask, StartsMustFitTheRows) {
  Graph g;
  Value x = g.input("x", InputKind::kArgument, {{2, 4, 1, 2}, DType::kF32});
  Value starts = g.input("starts", InputKind::kArgument, {{2, 5}, DType::kI32});
  auto add = [&](AttentionMask mask) {
    return user_error([&] { g.add(std::make_shared<Attention>(1, mask), {x, x, x, starts}); });
  };
  EXPECT_EQ(add({.documents = true}),
            "[attention] (C12) document_starts must be i32[2, 4], are i32[2, 5]");
  EXPECT_EQ(add({.causal = false, .documents = true}),
            "[attention] (C11) documents need the causal mask");
}

}  // namespace
}  // namespace tessera
