// The head's sums and gradients against PyTorch: tools/goldens/z_loss_golden.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "autodiff/backward.h"
#include "backends/ref/interpreter.h"
#include "base/file.h"
#include "ops/composite/cross_entropy.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {
namespace {

std::vector<double> flat(const nlohmann::json& json) {
  std::vector<double> values;
  for (const auto& row : json) {
    if (row.is_array()) {
      for (double value : row) values.push_back(value);
    } else {
      values.push_back(row.get<double>());
    }
  }
  return values;
}

void expect_near(const ref::Results& results, const std::string& output,
                 const std::vector<double>& expected) {
  const std::vector<double>& values = results.outputs.at(output)[0].data;
  ASSERT_EQ(values.size(), expected.size()) << output;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-12 * (1 + std::abs(expected[i]))) << output << " " << i;
  }
}

TEST(ZLoss, EqualsPyTorch) {
  auto golden = nlohmann::json::parse(
      read_file(std::string(TESSERA_SOURCE_DIR) + "/tests/goldens/z_loss.json"));
  auto matrix = [&](const char* name) {
    auto rows = static_cast<int64_t>(golden.at(name).size());
    auto columns = static_cast<int64_t>(golden.at(name)[0].size());
    return TensorType{{rows, columns}, DType::kF64};
  };
  Graph g;
  Value x = g.input("x", InputKind::kArgument, matrix("x"));
  Value w = g.input("w", InputKind::kArgument, matrix("w"));
  Value targets = g.input("targets", InputKind::kArgument, {{g.shape(x)[0]}, DType::kI32});
  auto sums = g.add(std::make_shared<LinearCrossEntropy>(), {x, w, targets});
  Value factor = constant_like(g, sums[1], golden.at("factor").get<double>());
  Value total = add(g, sums[0], mul(g, sums[1], factor));
  auto gradients = backward(g, total, std::vector<Value>{x, w});
  g.output("loss", sums[0]);
  g.output("squares", sums[1]);
  g.output("dx", gradients[0]);
  g.output("dw", gradients[1]);
  ref::Feeds feeds;
  for (const char* name : {"x", "w", "targets"}) feeds[name] = {flat(golden.at(name))};
  ref::Results results = ref::run(g, feeds);
  expect_near(results, "loss", {golden.at("loss").get<double>()});
  expect_near(results, "squares", {golden.at("squares").get<double>()});
  expect_near(results, "dx", flat(golden.at("dx")));
  expect_near(results, "dw", flat(golden.at("dw")));
}

}  // namespace
}  // namespace tessera
