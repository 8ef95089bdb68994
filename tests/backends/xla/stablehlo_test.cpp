// Programs as StableHLO, without anybody who runs them.
#include "backends/xla/stablehlo.h"

#include <gtest/gtest.h>

#include "backends/xla/client.h"
#include "ops/collective/collective.h"
#include "ops/move/far_tier.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "tests/base/error_expectation.h"
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
  g.update("w", add(g, x, w));
  EXPECT_EQ(stablehlo(g).text,
            "module @tessera attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 1 : "
            "i32} {\n"
            "func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32> "
            "{tf.aliasing_output = 1 : i32}) -> (tensor<2x3xf32>, tensor<2x3xf32>) {\n"
            "%v0 = \"stablehlo.constant\"() {value = dense<0x40000000> : tensor<2x3xf32>} : () -> "
            "tensor<2x3xf32>\n"
            "%v1 = \"stablehlo.multiply\"(%arg0, %v0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
            "tensor<2x3xf32>\n"
            "%v2 = \"stablehlo.add\"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
            "tensor<2x3xf32>\n"
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
}

}  // namespace
}  // namespace tessera::xla
