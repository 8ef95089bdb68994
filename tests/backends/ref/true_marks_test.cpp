#include "backends/ref/true_marks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

// Says that its output is the same on all ranks, and gives each rank its number.
class Lie final : public OpOf<Lie> {
 public:
  explicit Lie(AxisSet axes) : axes_(axes) {}
  std::string_view name() const override { return "lie"; }
  Tier tier() const override { return Tier::kComposite; }
  bool sets_marks() const override { return true; }
  std::vector<TensorType> infer(const InferContext&) const override { return {{{}, DType::kI32}}; }
  std::vector<Value> decompose(Graph& graph, std::span<const Value>) const override {
    return {axis_index(graph, axes_)};
  }
  auto fields() const { return std::make_tuple(field("axes", axes_)); }

 private:
  AxisSet axes_;
};

struct OnFourRanks {
  Graph graph{Mesh({{"data", 2}, {"tp", 2}})};
  AxisSet data = graph.mesh().axis("data"), tp = graph.mesh().axis("tp");

  std::string error(const ref::Feeds& feeds = {}) const {
    try {
      ref::run(graph, feeds, ref::true_marks());
    } catch (const InternalError& e) {
      return e.what();
    }
    return "";
  }
};

TEST(TrueMarks, ALieIsNamedWithItsNode) {
  for (bool over_data : {false, true}) {
    OnFourRanks job;
    job.graph.set_scope("layers.3");
    job.graph.output("y",
                     job.graph.add_one(std::make_shared<Lie>(over_data ? job.data : job.tp), {}));
    std::string error = job.error();
    expect_contains(error, "lie{");
    expect_contains(error, "layers.3");
    expect_contains(error, over_data ? "equal on ranks 0 and 2, but element 0 is 0 and 1"
                                     : "equal on ranks 0 and 1, but element 0 is 0 and 1");
  }
}

TEST(TrueMarks, MayDifferWhereMarkedAsVarying) {
  OnFourRanks job;
  Value x = job.graph.input("x", InputKind::kArgument, {{2}, DType::kF32, job.data});
  Value y = mul(job.graph, x, x);
  job.graph.output("y", y);
  job.graph.output("sum", sum_over_marks(job.graph, y));
  EXPECT_EQ(job.error({{"x", {{1, 2}, {1, 2}, {3, 4}, {3, 4}}}}), "");
  std::string error = job.error({{"x", {{1, 2}, {1, 2}, {3, 4}, {3, 5}}}});
  EXPECT_NE(error.find("input{"), std::string::npos) << "not what is made of it: " << error;
  expect_contains(error, "ranks 2 and 3, but element 1 is 4 and 5");
}

TEST(TrueMarks, ComparesBits) {
  OnFourRanks job;
  job.graph.output("y", job.graph.input("x", InputKind::kArgument, {{1}, DType::kF32}));
  EXPECT_EQ(job.error({{"x", {{NAN}}}}), "") << "the same NaN";
  EXPECT_NE(job.error({{"x", {{0.0}, {0.0}, {-0.0}, {0.0}}}}), "");
}

}  // namespace
}  // namespace tessera
