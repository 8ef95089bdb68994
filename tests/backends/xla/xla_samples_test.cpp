// Every op sample on XLA's CPU, against the reference backend. Needs a plug-in,
// $TESSERA_XLA_PLUGIN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

#include "backends/ref/interpreter.h"
#include "backends/xla/client.h"
#include "backends/xla/stablehlo.h"
#include "base/float16.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "base/text.h"
#include "ops/composite/attention.h"
#include "ops/composite/cross_entropy.h"
#include "ops/composite/sum_squares.h"
#include "ops/composite/vocabulary_parallel.h"
#include "ops/wide.h"
#include "tests/backends/xla/xla_plugin.h"
#include "tests/ops/op_samples.h"

namespace tessera::xla {
namespace {

constexpr int kDevices = 8;

template <class T>
void append(std::vector<std::byte>& bytes, T value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), first, first + sizeof value);
}

std::vector<std::byte> to_bytes(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes;
  for (double v : values) {
    switch (dtype) {
      case DType::kF64: append(bytes, v); break;
      case DType::kF32: append(bytes, static_cast<float>(v)); break;
      case DType::kBF16: append(bytes, BF16(static_cast<float>(v))); break;
      case DType::kF16: append(bytes, F16(static_cast<float>(v))); break;
      case DType::kI64: append(bytes, static_cast<int64_t>(v)); break;
      case DType::kI32: append(bytes, static_cast<int32_t>(v)); break;
      case DType::kBool: append(bytes, static_cast<uint8_t>(v != 0)); break;
    }
  }
  return bytes;
}

template <class T>
T element(const std::vector<std::byte>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double number(DType dtype, const std::vector<std::byte>& bytes, size_t i) {
  switch (dtype) {
    case DType::kF64: return element<double>(bytes, i);
    case DType::kF32: return element<float>(bytes, i);
    case DType::kBF16: return static_cast<float>(element<BF16>(bytes, i));
    case DType::kF16: return static_cast<float>(element<F16>(bytes, i));
    case DType::kI64: return static_cast<double>(element<int64_t>(bytes, i));
    case DType::kI32: return element<int32_t>(bytes, i);
    case DType::kBool: return element<uint8_t>(bytes, i);
  }
  return 0;
}

// The graph of a sample with its floats in another dtype; false where the op does not take that.
bool make_graph(const OpSample& sample, DType floats, Graph& g) {
  bool any = false;
  try {
    std::vector<Value> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      TensorType type = sample.inputs[i];
      any |= is_float(type.dtype);
      if (type.dtype == DType::kF64) type.dtype = floats;
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
    }
    const std::vector<Value> outputs = g.add(sample.op, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) g.output(cat("y", i), outputs[i]);
    stablehlo(g);
  } catch (const UserError&) {
    return false;
  }
  return any || floats == DType::kF32;
}

ref::Feeds feeds_of(const OpSample& sample, const Graph& g) {
  ref::Feeds feeds;
  uint64_t drawn = 0;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const TensorType& type = g.type(g.inputs()[i].value);
    for (int rank = 0; rank < g.mesh().world_size(); ++rank) {
      auto& ranks = feeds[cat("x", i)];
      if (rank > 0 && type.varying.empty()) {
        ranks.push_back(ranks[0]);
        continue;
      }
      std::vector<double> values(static_cast<size_t>(type.elements()));
      for (double& v : values) {
        const double r = random_uniform(7, 0, drawn++);
        v = is_float(type.dtype) ? sample.low + r * (sample.high - sample.low)
                                 : std::floor(r * static_cast<double>(sample.integer_bound));
      }
      if (auto given = sample.given.find(i); given != sample.given.end()) values = given->second;
      const std::vector<std::byte> bytes = to_bytes(type.dtype, values);
      for (size_t k = 0; k < values.size(); ++k) values[k] = number(type.dtype, bytes, k);
      ranks.push_back(values);
    }
  }
  return feeds;
}

using Results = std::vector<CompiledProgram::Buffers>;  // by rank

Results run_on(const Client& client, const Graph& g, const ref::Feeds& feeds,
               const EmitOptions& options) {
  const auto world = static_cast<size_t>(g.mesh().world_size());
  std::vector<std::vector<DeviceBuffer>> arguments(world);
  std::vector<std::vector<const DeviceBuffer*>> given(world);
  for (size_t rank = 0; rank < world; ++rank) {
    for (const GraphInput& input : g.inputs()) {
      const TensorType& type = g.type(input.value);
      const auto bytes = to_bytes(type.dtype, feeds.at(input.name)[rank]);
      arguments[rank].push_back(client.copy(type, bytes.data(), static_cast<int>(rank)));
    }
    for (const DeviceBuffer& buffer : arguments[rank]) given[rank].push_back(&buffer);
  }
  return client.compile(stablehlo(g, options).text, g.mesh().world_size())->run(given);
}

// The largest difference, as a share of the largest element.
double difference(const Results& results, size_t output, const std::vector<ref::Tensor>& expected) {
  double error = 0, scale = 1e-30;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const auto& [type, data] = expected[rank];
    std::vector<std::byte> bytes(static_cast<size_t>(type.elements() * size_of(type.dtype)));
    results[rank][output].read(bytes);
    for (size_t k = 0; k < data.size(); ++k) {
      const double got = number(type.dtype, bytes, k);
      if ((std::isinf(data[k]) && data[k] == got) || (std::isnan(data[k]) && std::isnan(got)))
        continue;
      if (!std::isfinite(got - data[k])) return std::numeric_limits<double>::infinity();
      error = std::max(error, std::abs(data[k] - got));
      scale = std::max(scale, std::abs(data[k]));
    }
  }
  return error / scale;
}

// Of floats that were rounded once; sums in bf16 are rounded in between too.
double bound(DType floats, DType output) {
  if (!is_float(output)) return 0;
  if (floats == DType::kBF16) return output == DType::kBF16 ? 0x1p-7 : 1e-2;
  return output == DType::kF64 && floats == DType::kF64 ? 1e-12 : 2e-6;
}

// Where what is written does not follow from the definition alone.
bool is_written_in_parts(const Op& op) {
  const std::string_view name = op.name();
  return name == "attention" || name == "attention_backward" ||
         name.starts_with("linear_cross_entropy") || name.starts_with("linear_log_sum_exp");
}

// Of several blocks of 64 tokens, with all that attention has; heads of some parts. None is a whole
// number of them.
std::vector<OpSample> longer_samples(DType floats) {
  auto f = [&](Shape shape) { return TensorType{std::move(shape), floats}; };
  auto statistic = [&](Shape shape) { return TensorType{std::move(shape), wide(floats)}; };
  constexpr int64_t kBatch = 2, kTokens = 131, kHeads = 4, kKvHeads = 2, kWidth = 4;
  const TensorType q = f({kBatch, kTokens, kHeads, kWidth}),
                   k = f({kBatch, kTokens, kKvHeads, kWidth}),
                   lse = statistic({kBatch, kHeads, kTokens}),
                   starts{{kBatch, kTokens}, DType::kI32}, keys{{kBatch}, DType::kI64},
                   first_head{{}, DType::kI32};
  // The first row's documents begin at 0 and 70, the other's at 0, 100 and 129.
  std::vector<double> begins;
  for (int64_t t = 0; t < kTokens; ++t) begins.push_back(t < 70 ? 0 : 70);
  for (int64_t t = 0; t < kTokens; ++t) begins.push_back(t < 100 ? 0 : t < 129 ? 100 : 129);
  const AttentionDropout none, whole{0.3, "noise"}, part{0.3, "noise", true};
  std::vector<OpSample> samples;
  for (const auto& [label, mask, dropout] :
       {std::tuple{"causal", AttentionMask{}, none},
        {"causal, part of the heads", AttentionMask{}, part},
        {"window", AttentionMask{true, 70}, none},
        {"full", AttentionMask{false}, none},
        {"documents, window, dropout", AttentionMask{true, 90, true}, whole}}) {
    OpSample forward{.label = label,
                     .op = std::make_shared<Attention>(0.5, mask, dropout),
                     .inputs = {q, k, k},
                     .integer_bound = 1000};
    OpSample backward{.label = label,
                      .op = std::make_shared<AttentionBackward>(0.5, mask, dropout),
                      .inputs = {q, k, k, q, lse, q},
                      .integer_bound = 1000};
    for (OpSample* sample : {&forward, &backward}) {
      if (mask.documents) {
        sample->given[sample->inputs.size()] = begins;
        sample->inputs.push_back(starts);
      }
      if (dropout.p > 0) sample->inputs.push_back(keys);
      if (dropout.part) sample->inputs.push_back(first_head);
      samples.push_back(*sample);
    }
  }
  const TensorType x = f({67, 8}), w = f({37, 8}), targets{{67}, DType::kI32}, one = statistic({}),
                   valid{{}, DType::kI32}, row = statistic({67});
  std::vector<double> ids;
  for (int64_t n = 0; n < 67; ++n) ids.push_back(n % 5 == 0 ? kIgnoreIndex : double(n * 11 % 37));
  auto add = [&](OpPtr op, std::vector<TensorType> inputs) {
    samples.push_back({.op = std::move(op), .inputs = std::move(inputs), .given = {{2, ids}}});
    if (samples.back().inputs.size() > 3 && samples.back().inputs[3].dtype == DType::kI32)
      samples.back().given[3] = {30};
  };
  add(std::make_shared<LinearCrossEntropy>(), {x, w, targets});
  add(std::make_shared<LinearLogSumExp>(), {x, w, targets, valid});
  for (HeadGradients wanted :
       {HeadGradients{}, HeadGradients{true, false}, HeadGradients{false, true},
        HeadGradients{true, true, true}, HeadGradients{false, true, true}}) {
    std::vector<TensorType> of_head{x, w, targets, one, one},
        of_part{x, w, targets, valid, row, row, row};
    for (std::vector<TensorType>* operands : {&of_head, &of_part})
      if (wanted.adds) operands->push_back(statistic(w.shape));
    add(std::make_shared<LinearCrossEntropyBackward>(wanted), of_head);
    add(std::make_shared<LinearLogSumExpBackward>(wanted), of_part);
  }
  return samples;
}

class XlaSamples : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = plugin_of_tests();
    if (!path) GTEST_SKIP() << "no plug-in of XLA's CPU: tools/packages install xla";
    plugin_.emplace(path->string());
    client_.emplace(*plugin_, kDevices);
  }
  // False where the op does not take floats of that dtype.
  bool agrees(const OpSample& sample, DType floats, const EmitOptions& options = {}) {
    Graph g(sample.mesh);
    if (!make_graph(sample, floats, g)) return false;
    SCOPED_TRACE(cat(sample.op->name(), " ", sample.label, " ", name(floats)));
    const ref::Feeds feeds = feeds_of(sample, g);
    const Results results = run_on(*client_, g, feeds, options);
    const auto expected = ref::run(g, feeds).outputs;
    for (size_t k = 0; k < g.outputs().size(); ++k) {
      const GraphOutput& output = g.outputs()[k];
      EXPECT_LE(difference(results, k, expected.at(output.name)),
                bound(floats, g.type(output.value).dtype))
          << output.name;
    }
    return true;
  }

  std::optional<Plugin> plugin_;
  std::optional<Client> client_;
};

constexpr DType kFloats[] = {DType::kF32, DType::kBF16, DType::kF64};

TEST_F(XlaSamples, AgreeWithTheReference) {
  EXPECT_EQ(client_->platform(), "cpu");
  int run = 0;
  for (const OpSample& sample : op_samples())
    for (DType floats : kFloats) run += agrees(sample, floats);
  EXPECT_GT(run, 250);
}

// The same with parts of a few tokens and rows, most with a remainder.
TEST_F(XlaSamples, AgreeInParts) {
  int run = 0;
  for (const OpSample& sample : op_samples()) {
    if (!is_written_in_parts(*sample.op)) continue;
    for (DType floats : kFloats)
      run += agrees(sample, floats, {.attention_tokens = 4, .head_logits = 12});
  }
  EXPECT_GT(run, 40);
}

TEST_F(XlaSamples, LongerOnesAgreeInParts) {
  for (DType floats : kFloats)
    for (const OpSample& sample : longer_samples(floats))
      EXPECT_TRUE(agrees(sample, floats, {.attention_tokens = 64, .head_logits = 1000}));
}

// Blocks of keys that none of a block's queries sees are not worked on: a value that is no number
// would make sums of products with 0 none.
TEST_F(XlaSamples, MaskedBlocksAreLeftOut) {
  constexpr int64_t kTokens = 64, kBlock = 16;
  const TensorType type{{1, kTokens, 1, 1}, DType::kF32};
  // A token of the keys, and one of the queries of another block that does not see it.
  for (const auto& [mask, key, query] : {std::tuple{AttentionMask{}, 63, 47},
                                         {AttentionMask{true, 10}, 0, 32},
                                         {AttentionMask{true, 0, true}, 0, 63}}) {
    Graph g;
    std::vector<Value> operands;
    ref::Feeds feeds;
    for (const char* name : {"q", "k", "v"}) {
      operands.push_back(g.input(name, InputKind::kArgument, type));
      feeds[name] = {std::vector<double>(kTokens, 1)};
    }
    feeds["v"][0][static_cast<size_t>(key)] = std::nan("");
    if (mask.documents) {
      operands.push_back(g.input("starts", InputKind::kArgument, {{1, kTokens}, DType::kI32}));
      feeds["starts"] = {std::vector<double>(kTokens, 0)};
      std::fill(feeds["starts"][0].begin() + 20, feeds["starts"][0].end(), 20);
    }
    g.output("o", g.add(std::make_shared<Attention>(1.0, mask), operands)[0]);
    for (int64_t tokens : {kBlock, kTokens}) {
      const Results results = run_on(*client_, g, feeds, {.attention_tokens = tokens});
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      results[0][0].read(bytes);
      const double seen = number(DType::kF32, bytes, static_cast<size_t>(query));
      // The definition works on all.
      EXPECT_EQ(std::isnan(seen), tokens == kTokens) << query << " " << seen;
    }
  }
}

// In f32 as good as in f64: the reference, which adds one element after the other, is not.
TEST_F(XlaSamples, SumOfManySquares) {
  constexpr int64_t kElements = 1234567;
  Graph g;
  const Value x = g.input("x", InputKind::kArgument, {{kElements}, DType::kF32});
  g.output("y", g.add_one(std::make_shared<SumSquares>(), {x}));
  std::vector<double> values;
  double exact = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    values.push_back(static_cast<float>(random_uniform(7, 0, static_cast<uint64_t>(i))));
    exact += values.back() * values.back();
  }
  for (int64_t part : {kElements + 1, int64_t{100000}}) {
    const Results results = run_on(*client_, g, {{"x", {values}}}, {.sum_elements = part});
    EXPECT_LE(difference(results, 0, {{{{}, DType::kF32}, {exact}}}),
              part > kElements ? 0x1p-23 : 0x1p-22)
        << part;
  }
}

}  // namespace
}  // namespace tessera::xla
