// Two layers, the first matrix split by columns (its outputs), the second by rows, the batch over
// ranks: the gradients of every rank, put together, are those of one rank.
#include <gtest/gtest.h>

#include <cmath>

#include "autodiff/backward.h"
#include "backends/ref/interpreter.h"
#include "base/random.h"
#include "ir/marks.h"
#include "ir/verifier.h"
#include "ops/collective/collective.h"
#include "ops/composite/linear.h"
#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12, kWidth = 6, kHidden = 24;

using Tensors = std::map<std::string, std::vector<double>>;

std::vector<double> random_values(const std::string& name, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(3, stream_of(name), i);
  return values;
}

// Rows or columns [begin, begin + count) of a matrix.
std::vector<double> part(const std::vector<double>& m, int64_t columns, bool rows, int64_t begin,
                         int64_t count) {
  std::vector<double> result;
  for (int64_t i = 0; i < static_cast<int64_t>(m.size()); ++i) {
    int64_t at = rows ? i / columns : i % columns;
    if (at >= begin && at < begin + count) result.push_back(m[static_cast<size_t>(i)]);
  }
  return result;
}

// sum of (w2 tanh(w1 x) + bias)^2 over the batch, on a mesh {data, tp}.
Value loss_of(Graph& g, Value x, Value w1, Value w2, Value bias) {
  Value h = unary(g, UnaryKind::kTanh, linear(g, x, w1));  // [B/data, H/tp]
  Value y = linear(g, h, w2);                              // [B/data, E], a part of the sum over tp
  AxisSet tp = g.mesh().axis("tp");
  y = g.add_one(std::make_shared<AllReduceOp>(tp, Reduction::kSum), {y});
  y = add(g, y, broadcast_leading(g, bias, g.shape(y)));
  return sum_over_marks(g, reduce_sum(g, mul(g, y, y), {0, 1}));
}

void add_gradients(Graph& g, Value loss, const std::map<std::string, Value>& wrt) {
  std::vector<Value> values;
  for (const auto& [name, v] : wrt) values.push_back(v);
  std::vector<Value> gradients = backward(g, loss, values);
  verify(g, "backward");
  size_t i = 0;
  for (const auto& [name, v] : wrt) {
    ASSERT_TRUE(gradients[i]) << name;
    EXPECT_EQ(g.type(gradients[i]), g.type(v)) << name;
    g.output(name, gradients[i++]);
  }
  g.output("loss", loss);
}

Graph split_net(const Mesh& mesh) {
  Graph g(mesh);
  AxisSet data = mesh.axis("data"), tp = mesh.axis("tp");
  auto input = [&](const std::string& name, Shape shape, AxisSet varying) {
    return g.input(name, InputKind::kArgument, {std::move(shape), DType::kF64, varying});
  };
  int64_t hidden = kHidden / mesh.size(tp);
  Value x = input("x", {kBatch / mesh.size(data), kWidth}, data);
  Value w1 = input("w1", {hidden, kWidth}, tp), w2 = input("w2", {kWidth, hidden}, tp),
        bias = input("bias", {kWidth}, {});
  add_gradients(g, loss_of(g, x, w1, w2, bias), {{"x", x}, {"w1", w1}, {"w2", w2}, {"bias", bias}});
  return g;
}

// What rank holds of each tensor of the whole net.
std::vector<double> local(const Mesh& mesh, int rank, const std::string& name,
                          const std::vector<double>& whole) {
  AxisSet data = mesh.axis("data"), tp = mesh.axis("tp");
  int64_t batch = kBatch / mesh.size(data), hidden = kHidden / mesh.size(tp),
          i = mesh.index(rank, data), j = mesh.index(rank, tp);
  if (name == "x") return part(whole, kWidth, true, i * batch, batch);
  if (name == "w1") return part(whole, kWidth, true, j * hidden, hidden);
  if (name == "w2") return part(whole, kHidden, false, j * hidden, hidden);
  return whole;  // the bias, the loss
}

Tensors whole_inputs() {
  return {{"x", random_values("x", kBatch * kWidth)},
          {"w1", random_values("w1", kHidden * kWidth)},
          {"w2", random_values("w2", kWidth * kHidden)},
          {"bias", random_values("bias", kWidth)}};
}

Tensors whole_results() {
  ref::Feeds feeds;
  for (const auto& [name, values] : whole_inputs()) feeds[name] = {values};
  Tensors results;
  for (const auto& [name, ranks] :
       ref::run(split_net(Mesh({{"data", 1}, {"tp", 1}})), feeds).outputs)
    results[name] = ranks[0].data;
  return results;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double error = 0, scale = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error = std::max(error, std::abs(got[i] - want[i]));
    scale = std::max(scale, std::abs(want[i]));
  }
  EXPECT_GT(scale, 0) << what;
  EXPECT_LE(error, 1e-12 * scale) << what;
}

TEST(ShardedGradient, TheWholeNetAgreesWithADirectionalDerivative) {
  ref::Feeds plus, minus;
  Tensors inputs = whole_inputs(), gradients = whole_results();
  double analytic = 0;
  for (const auto& [name, values] : inputs) {
    std::vector<double> direction =
        random_values(name + " direction", static_cast<int64_t>(values.size()));
    std::vector<double> up = values, down = values;
    for (size_t i = 0; i < values.size(); ++i) {
      up[i] += 1e-6 * direction[i];
      down[i] -= 1e-6 * direction[i];
      analytic += direction[i] * gradients.at(name)[i];
    }
    plus[name] = {up};
    minus[name] = {down};
  }
  Graph g = split_net(Mesh({{"data", 1}, {"tp", 1}}));
  double numeric = (ref::run(g, plus).outputs.at("loss")[0].data[0] -
                    ref::run(g, minus).outputs.at("loss")[0].data[0]) /
                   2e-6;
  EXPECT_NEAR(analytic, numeric, 1e-6 * std::abs(numeric));
}

TEST(ShardedGradient, TensorAndDataParallelEqualOneRank) {
  Tensors inputs = whole_inputs(), expected = whole_results();
  std::vector<std::pair<int, int>> worlds{{2, 1}, {3, 1}, {1, 2}, {1, 3},
                                          {2, 2}, {3, 2}, {1, 8}, {4, 2}};
  for (auto [data, tp] : worlds) {
    SCOPED_TRACE(cat("data ", data, ", tp ", tp));
    Mesh mesh({{"data", data}, {"tp", tp}});
    ref::Feeds feeds;
    for (const auto& [name, values] : inputs) {
      for (int r = 0; r < mesh.world_size(); ++r)
        feeds[name].push_back(local(mesh, r, name, values));
    }
    ref::Results results = ref::run(split_net(mesh), feeds);
    for (const auto& [name, ranks] : results.outputs) {
      for (int r = 0; r < mesh.world_size(); ++r) {
        expect_close(ranks[static_cast<size_t>(r)].data, local(mesh, r, name, expected.at(name)),
                     cat(name, " on rank ", r));
      }
    }
  }
}

// All parameters in one flat buffer of which every rank holds a piece: gathered in the forward
// pass, reduce-scattered in the backward pass.
Graph flat_net(const Mesh& mesh, int64_t flat_size) {
  Graph g(mesh);
  AxisSet data = mesh.axis("data");
  int64_t n = mesh.size(data);
  Value x = g.input("x", InputKind::kArgument, {{kBatch / n, kWidth}, DType::kF64, data});
  Value shard = g.input("flat", InputKind::kArgument, {{flat_size / n}, DType::kF64, data});
  std::vector<UnitMember> members{{0, {kHidden, kWidth}},
                                  {kHidden * kWidth, {kWidth, kHidden}},
                                  {2 * kHidden * kWidth, {kWidth}}};
  auto w = g.add(std::make_shared<Unflatten>(members), {all_gather(g, shard, data, 0)});
  Value h = unary(g, UnaryKind::kTanh, linear(g, x, w[0]));
  Value y = linear(g, h, w[1]);
  y = add(g, y, broadcast_leading(g, w[2], g.shape(y)));
  add_gradients(g, sum_over_marks(g, reduce_sum(g, mul(g, y, y), {0, 1})),
                {{"x", x}, {"flat", shard}});
  return g;
}

TEST(ShardedGradient, FullyShardedParametersEqualOneRank) {
  Tensors inputs = whole_inputs(), expected = whole_results();
  constexpr int64_t kFlat = 312;  // 294 elements and padding
  auto flat = [&](const Tensors& t) {
    std::vector<double> all = t.at("w1");
    all.insert(all.end(), t.at("w2").begin(), t.at("w2").end());
    all.insert(all.end(), t.at("bias").begin(), t.at("bias").end());
    all.resize(kFlat);
    return all;
  };
  for (int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(cat(ranks, " ranks"));
    Mesh mesh({{"data", ranks}, {"tp", 1}});
    ref::Feeds feeds;
    int64_t piece = kFlat / ranks;
    for (int r = 0; r < ranks; ++r) {
      feeds["x"].push_back(local(mesh, r, "x", inputs.at("x")));
      feeds["flat"].push_back(part(flat(inputs), 1, true, r * piece, piece));
    }
    ref::Results results = ref::run(flat_net(mesh, kFlat), feeds);
    std::vector<double> gathered, x;
    for (int r = 0; r < ranks; ++r) {
      const auto& g = results.outputs.at("flat")[static_cast<size_t>(r)].data;
      gathered.insert(gathered.end(), g.begin(), g.end());
      const auto& dx = results.outputs.at("x")[static_cast<size_t>(r)].data;
      x.insert(x.end(), dx.begin(), dx.end());
      EXPECT_NEAR(results.outputs.at("loss")[static_cast<size_t>(r)].data[0],
                  expected.at("loss")[0], 1e-12 * expected.at("loss")[0]);
    }
    expect_close(gathered, flat(expected), "flat");
    expect_close(x, expected.at("x"), "x");
  }
}

}  // namespace
}  // namespace tessera
