// Programs as StableHLO, without anybody who runs them.
#include "backends/xla/stablehlo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "backends/xla/client.h"
#include "ops/collective/collective.h"
#include "ops/composite/attention.h"
#include "ops/composite/cache_write.h"
#include "ops/composite/cross_entropy.h"
#include "ops/move/far_tier.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/ops/op_samples.h"

namespace tessera::xla {
namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(StableHlo, IsTheGenericFormOfTheGraph) {
  Graph g;
  const Value x = g.input("x", InputKind::kArgument, {{2, 3}, DType::kF32});
  const Value w = g.input("w", InputKind::kState, {{2, 3}, DType::kF32});
  g.output("y", mul(g, x, constant_like(g, x, 2)));
  {
    Scope scope(g, "layers.3");
    g.update("w", add(g, x, w));
  }
  EXPECT_EQ(stablehlo(g).text,
            "module @tessera attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 1 : "
            "i32} {\n"
            "func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32> "
            "{tf.aliasing_output = 1 : i32}) -> (tensor<2x3xf32>, tensor<2x3xf32>) {\n"
            "%v0 = \"stablehlo.constant\"() {value = dense<0x40000000> : tensor<2x3xf32>} : () -> "
            "tensor<2x3xf32> loc(\"constant\")\n"
            "%v1 = \"stablehlo.multiply\"(%arg0, %v0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
            "tensor<2x3xf32> loc(\"mul\")\n"
            "%v2 = \"stablehlo.add\"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
            "tensor<2x3xf32> loc(\"add in layers.3\")\n"
            "\"func.return\"(%v1, %v2) : (tensor<2x3xf32>, tensor<2x3xf32>) -> ()\n}\n}\n");
}

TEST(StableHlo, WhatIsOverwrittenUnreadGivesItsMemory) {
  Graph g;
  const Value x = g.input("x", InputKind::kArgument, {{4}, DType::kF32});
  g.output("y", unary(g, UnaryKind::kNeg, x));
  g.update("kept", unary(g, UnaryKind::kAbs, x));
  const StableHlo program = stablehlo(g);
  ASSERT_EQ(program.arguments.size(), 2u);
  EXPECT_EQ(program.arguments[1].name, "kept");
  EXPECT_TRUE(program.arguments[1].is_state);
  ASSERT_EQ(program.results.size(), 2u);
  EXPECT_EQ(program.results[1].name, "kept");
  EXPECT_EQ(count(program.text, "%arg1: tensor<4xf32> {tf.aliasing_output = 1 : i32}"), 1);
}

TEST(StableHlo, RanksAreReplicas) {
  const Mesh mesh({{"data", 2}, {"tp", 3}});
  Graph g(mesh);
  const Value x = g.input("x", InputKind::kArgument, {{4}, DType::kBF16, mesh.all_axes()});
  g.output("y", all_gather(g, x, mesh.axis("tp"), 0));
  const std::string text = stablehlo(g).text;
  EXPECT_EQ(count(text, "mhlo.num_replicas = 6 : i32"), 1);
  EXPECT_EQ(count(text, "replica_groups = dense<[[0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>"), 1);
  EXPECT_EQ(count(text, "-> tensor<12xbf16>"), 1);
}

// Sums travel as bf16 and are taken in f32, in rank order.
TEST(StableHlo, ReduceScatterSumsInRankOrder) {
  const Mesh mesh({{"data", 3}});
  Graph g(mesh);
  const Value x = g.input("x", InputKind::kArgument, {{6}, DType::kBF16, mesh.all_axes()});
  g.output("y", reduce_scatter(g, x, mesh.all_axes(), 0, DType::kF32));
  const std::string text = stablehlo(g).text;
  EXPECT_EQ(count(text, "\"stablehlo.all_to_all\""), 1);
  EXPECT_EQ(count(text, "(tensor<3x2xbf16>) -> tensor<3x2xbf16>"), 1);
  EXPECT_EQ(count(text, "\"stablehlo.add\""), 2);
  EXPECT_EQ(count(text, "\"stablehlo.reduce_scatter\""), 0);
}

// A node of the backward pass, and one that is computed again, read the forward pass through a
// barrier each; the second is tied to the last product.
TEST(StableHlo, PhasesAreHeldApart) {
  Graph g;
  const Value x = g.input("x", InputKind::kArgument, {{4, 4}, DType::kF32});
  const Value y = unary(g, UnaryKind::kTanh, x), z = unary(g, UnaryKind::kExp, x);
  g.set_phase(Phase::kBackward);
  const Value d = dot(g, y, y, 0, 0, 0, DType::kF32);
  g.set_phase(Phase::kRecompute);
  const Value again = unary(g, UnaryKind::kTanh, z);
  g.output("d", d);
  g.output("again", again);
  const std::string text = stablehlo(g).text;
  EXPECT_EQ(count(text, "\"stablehlo.optimization_barrier\"(%v0) :"), 1) << text;
  EXPECT_EQ(count(text, "\"stablehlo.optimization_barrier\"(%v1, %v3) :"), 1) << text;
}

// Elements of the largest tensor of the text.
int64_t largest(const std::string& text) {
  int64_t most = 0;
  for (size_t at = text.find("tensor<"); at != std::string::npos; at = text.find("tensor<", at)) {
    at += 7;
    int64_t elements = 1;
    while (std::isdigit(text[at])) {
      size_t end = 0;
      elements *= std::stoll(text.substr(at, 20), &end);
      at += end + 1;
    }
    most = std::max(most, elements);
  }
  return most;
}

// A batch of two rows, four heads over two.
Graph long_attention(int64_t tokens, AttentionMask mask, double dropout) {
  Graph g;
  const TensorType q{{2, tokens, 4, 64}, DType::kBF16}, k{{2, tokens, 2, 64}, DType::kBF16};
  std::vector<Value> operands{g.input("q", InputKind::kArgument, q),
                              g.input("k", InputKind::kArgument, k),
                              g.input("v", InputKind::kArgument, k)};
  std::vector<Value> further;
  if (mask.documents)
    further.push_back(g.input("starts", InputKind::kArgument, {{2, tokens}, DType::kI32}));
  if (dropout > 0) further.push_back(g.input("keys", InputKind::kArgument, {{2}, DType::kI64}));
  const AttentionDropout drop{dropout, "noise"};
  operands.insert(operands.end(), further.begin(), further.end());
  const std::vector<Value> made = g.add(std::make_shared<Attention>(0.125, mask, drop), operands);
  g.set_phase(Phase::kBackward);
  operands.resize(3);
  operands.insert(operands.end(), {made[0], made[1], g.input("do", InputKind::kArgument, q)});
  operands.insert(operands.end(), further.begin(), further.end());
  g.output("o", made[0]);
  for (Value v : g.add(std::make_shared<AttentionBackward>(0.125, mask, drop), operands))
    g.output("d", v);
  return g;
}

// Forward and backward, with whatever mask: as many elements as the operands have, or as pairs of
// blocks, and never as pairs of tokens.
TEST(StableHlo, LongAttentionHasNoSquareOfTokens) {
  constexpr int64_t kOfOperands = 2 * 4096 * 4 * 64, kOfBlocks = 2 * 4 * 512 * 512;
  for (const auto& [mask, dropout] : {std::pair{AttentionMask{}, 0.0},
                                      {AttentionMask{true, 1000}, 0.1},
                                      {AttentionMask{false}, 0.1},
                                      {AttentionMask{true, 0, true}, 0.0}}) {
    const Graph g = long_attention(4096, mask, dropout);
    const std::string text = stablehlo(g).text;
    EXPECT_EQ(count(text, "4096x4096"), 0);
    EXPECT_LE(largest(text), std::max(kOfOperands, kOfBlocks));
    EXPECT_EQ(largest(stablehlo(g, {.attention_tokens = 4096}).text), 2 * 4 * 4096 * 4096);
  }
  EXPECT_EQ(count(stablehlo(long_attention(512, {}, 0)).text, "stablehlo.while"), 0);
}

// The backward pass reads values of the forward pass through barriers that stand before its loop.
TEST(StableHlo, LoopsOfTheBackwardPassAreBehindBarriers) {
  const std::string text = stablehlo(long_attention(1024, {}, 0)).text;
  // Of o and lse; operands are arguments, which need none.
  EXPECT_EQ(count(text, "optimization_barrier"), 2);
  const size_t second = text.find("optimization_barrier", text.find("optimization_barrier") + 1);
  EXPECT_LT(text.find("stablehlo.while"), text.find("optimization_barrier"));
  EXPECT_NE(text.find("stablehlo.while", second), std::string::npos);
}

// 8,192 rows of a vocabulary of 32,000: four parts of 2,048 rows.
TEST(StableHlo, LargeHeadHasNoRowsTimesVocabulary) {
  Graph g;
  const Value x = g.input("x", InputKind::kArgument, {{8192, 64}, DType::kBF16});
  const Value w = g.input("w", InputKind::kArgument, {{32000, 64}, DType::kBF16});
  const Value targets = g.input("targets", InputKind::kArgument, {{8192}, DType::kI32});
  const CrossEntropySums sums = linear_cross_entropy(g, x, w, targets);
  g.output("loss", sums.loss);
  g.set_phase(Phase::kBackward);
  const Value one = constant(g, {{}, DType::kF32}, 1);
  for (Value v : g.add(std::make_shared<LinearCrossEntropyBackward>(), {x, w, targets, one, one}))
    g.output("d", v);
  const std::string text = stablehlo(g).text;
  EXPECT_EQ(count(text, "8192x32000"), 0);
  EXPECT_GT(count(text, "tensor<2048x32000xf32>"), 0);
  EXPECT_EQ(largest(text), 2048 * 32000);
  EXPECT_EQ(count(text, "stablehlo.while"), 2);
  EXPECT_EQ(largest(stablehlo(g, {.head_logits = int64_t{1} << 40}).text), 8192 * 32000);
}

// Nothing is made for each element and segment.
TEST(StableHlo, OptimizersHaveNoPlaneOfSegments) {
  constexpr int64_t kElements = 1000, kSegments = 7;
  for (const OpSample& sample : op_samples()) {
    if (sample.op->name() != "adamw" && sample.op->name() != "lion" && sample.op->name() != "sgd")
      continue;
    Graph g;
    std::vector<Value> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      TensorType type = sample.inputs[i];
      if (!type.shape.empty()) type.shape[0] = i + 2 < sample.inputs.size() ? kElements : kSegments;
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
    }
    for (Value v : g.add(sample.op, inputs)) g.output("y", v);
    EXPECT_EQ(largest(stablehlo(g).text), kElements) << sample.op->name();
  }
}

// Tokens are put into the cache, and nothing is made for each of its places.
TEST(StableHlo, CacheWriteIsAScatter) {
  Graph g;
  const TensorType cache{{8, 4096, 2, 16}, DType::kBF16}, each{{3}, DType::kI32};
  const Value slot = g.input("cache", InputKind::kState, cache);
  const Value x = g.input("x", InputKind::kArgument, {{3, 7, 2, 16}, DType::kBF16});
  const Value start = g.input("start", InputKind::kArgument, each);
  const Value row = g.input("row", InputKind::kArgument, each);
  g.update("cache", g.add_one(std::make_shared<CacheWrite>(), {slot, x, start, row}));
  const StableHlo program = stablehlo(g);
  EXPECT_EQ(program.ops, 4);
  EXPECT_EQ(count(program.text, "\"stablehlo.scatter\"(%arg0, "), 1);
}

TEST(StableHlo, RefusesWhatXlaDoesNotRun) {
  Graph far;
  far.set_scope("layers.1");
  const Value x = far.input("x", InputKind::kArgument, {{4}, DType::kF32});
  far.output("y", fetch(far, offload(far, x)));
  expect_contains(user_error([&] { stablehlo(far); }), "XLA does not run 'offload' (layers.1)");
  Graph wide;
  wide.output(
      "y", unary(wide, UnaryKind::kErf, wide.input("x", InputKind::kArgument, {{4}, DType::kF64})));
  expect_contains(user_error([&] { stablehlo(wide); }), "XLA does not run 'erf' in f64");
}

// Every op of the registry is written, or refused by its name.
TEST(StableHlo, KnowsEveryOp) {
  for (const OpSample& sample : op_samples()) {
    Graph g(sample.mesh);
    std::vector<Value> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, sample.inputs[i]));
    const std::vector<Value> outputs = g.add(sample.op, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) g.output(cat("y", i), outputs[i]);
    SCOPED_TRACE(cat(sample.op->name(), " ", sample.label));
    try {
      EXPECT_GE(stablehlo(g).ops, 0);
    } catch (const UserError& error) {
      const std::string text = error.what();
      EXPECT_TRUE(text.find("'offload'") + 1 || text.find("'fetch'") + 1 || text.find("'erf'") + 1)
          << text;
    }
  }
}

// Every op sample that XLA takes, in one file of several modules.
TEST(StableHlo, IsSyntaxOfMlir) {
  const std::string mlir_opt = "/usr/lib/llvm-19/bin/mlir-opt";
  if (!std::filesystem::exists(mlir_opt)) GTEST_SKIP() << "no mlir-opt: install mlir-19-tools";
  std::string all;
  int programs = 0;
  for (const OpSample& sample : op_samples()) {
    Graph g(sample.mesh);
    std::vector<Value> inputs;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      TensorType type = sample.inputs[i];
      if (type.dtype == DType::kF64) type.dtype = DType::kF32;
      inputs.push_back(g.input(cat("x", i), InputKind::kArgument, type));
    }
    try {
      for (Value v : g.add(sample.op, inputs)) g.output(cat("y", v.id), v);
      all += (programs++ ? "// -----\n" : "") + stablehlo(g).text;
    } catch (const UserError&) {  // the op takes f64 only, or XLA does not run it
    }
  }
  EXPECT_GT(programs, 100);
  ScratchDirectory directory;
  directory.write("programs.mlir", all);
  const std::string command =
      cat(mlir_opt, " --allow-unregistered-dialect --split-input-file ",
          (directory / "programs.mlir").string(), " > ", (directory / "out").string(), " 2> ",
          (directory / "errors").string());
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(directory / "errors").substr(0, 4000);
}

TEST(XlaPlugin, RefusesWhatIsNone) {
  expect_contains(user_error([] { Plugin("no-such-library.so"); }), "no-such-library.so");
  expect_contains(user_error([] { Plugin("libm.so.6"); }),
                  "'libm.so.6' is no plug-in of XLA: it has no GetPjrtApi");
}

TEST(StableHlo, OptionsOfTheCompiler) {
  const std::string of_one = compile_options(1), of_512 = compile_options(512);
  EXPECT_EQ(of_one.substr(0, 6), std::string("\x1a\x04\x20\x01\x28\x01"));
  EXPECT_EQ(of_512.substr(0, 7), std::string("\x1a\x05\x20\x80\x04\x28\x01"));
  EXPECT_NE(of_one.find("xla_allow_excess_precision"), std::string::npos);
  EXPECT_EQ(compile_options(1, 300).substr(0, 9),
            std::string("\x1a\x07\x20\x01\x28\x01\x78\xac\x02"));
}

}  // namespace
}  // namespace tessera::xla
