// Every optimizer against PyTorch, in f64: tools/goldens/optimizer_goldens.py.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "backends/ref/interpreter.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Doubles = std::vector<double>;

// The parameters of the golden in one flat unit, the one behind the other with a gap of zeros.
struct FlatGolden {
  static constexpr size_t kGap = 3;
  Json json =
      Json::parse(read_file(std::string(TESSERA_SOURCE_DIR) + "/tests/goldens/optimizers.json"));

  Doubles flat(const Json& tensors) const {
    Doubles values;
    for (const Json& tensor : tensors) {
      for (double value : tensor) values.push_back(value);
      values.resize(values.size() + kGap);
    }
    return values;
  }
  Doubles begins() const {
    Doubles begins;
    double next = 0;
    for (const Json& tensor : json.at("weights")) {
      begins.push_back(next);
      next += static_cast<double>(tensor.size() + kGap);
    }
    return begins;
  }
  // Matrices decay.
  Doubles decays() const {
    Doubles decays;
    for (const Json& shape : json.at("shapes"))
      decays.push_back(shape.size() > 1 ? json.at("weight_decay").get<double>() : 0);
    return decays;
  }
};

OptimizerOptions options_of(const std::string& name, const Json& json) {
  OptimizerOptions options{.name = name};
  if (json.contains("betas")) {
    options.beta1 = json["betas"][0];
    options.beta2 = json["betas"][1];
  }
  options.epsilon = json.value("eps", options.epsilon);
  options.momentum = json.value("momentum", options.momentum);
  return options;
}

// One optimizer on one unit in f64.
class Updater {
 public:
  Updater(const OptimizerOptions& options, Doubles weights, const Doubles& begins,
          const Doubles& decays)
      : optimizer_(make_optimizer(options)) {
    const TensorType flat{{std::ssize(weights)}, DType::kF64}, scalar{{}, DType::kF64};
    const int64_t segments = std::ssize(begins);
    std::vector<Value> state;
    for (const Slot& slot : optimizer_->slots("u", flat)) {
      EXPECT_EQ(slot.type, flat);
      state.push_back(graph_.input(slot.name(), InputKind::kState, slot.type));
      kept_.push_back(slot.name());
      feeds_[slot.name()] = {Doubles(weights.size())};
    }
    auto input = [&](const char* name, const TensorType& type) {
      return graph_.input(name, InputKind::kArgument, type);
    };
    Value w = graph_.input("w", InputKind::kState, flat);
    UnitUpdate update{.weights = w,
                      .gradient = input("g", flat),
                      .state = state,
                      .lr = input("lr", scalar),
                      .scale = input("scale", scalar),
                      .ok = input("ok", {{}, DType::kBool}),
                      .step = input("step", {{}, DType::kI64}),
                      .segment_begin = input("begin", {{segments}, DType::kI64}),
                      .segment_decay = input("decay", {{segments}, DType::kF64})};
    std::vector<Value> next = optimizer_->update(graph_, update);
    EXPECT_EQ(next.size(), 1 + kept_.size());
    graph_.update("w", next[0]);
    for (size_t k = 0; k < kept_.size(); ++k) graph_.update(kept_[k], next[1 + k]);
    feeds_["w"] = {std::move(weights)};
    feeds_["begin"] = {begins};
    feeds_["decay"] = {decays};
  }

  void step(const Doubles& gradient, double lr, double scale, bool ok = true) {
    feeds_["g"] = {gradient};
    feeds_["lr"] = {{lr}};
    feeds_["scale"] = {{scale}};
    feeds_["ok"] = {{ok ? 1.0 : 0.0}};
    feeds_["step"] = {{step_ += ok ? 1 : 0}};
    ref::Results results = ref::run(graph_, feeds_);
    for (const auto& [slot, ranks] : results.updates) feeds_[slot] = {ranks[0].data};
  }
  const Doubles& weights() const { return feeds_.at("w")[0]; }
  std::vector<Doubles> all() const {
    std::vector<Doubles> all{weights()};
    for (const std::string& slot : kept_) all.push_back(feeds_.at(slot)[0]);
    return all;
  }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  Graph graph_;
  std::vector<std::string> kept_;
  ref::Feeds feeds_;
  double step_ = 0;
};

TEST(Optimizers, UpdateAsPyTorchDoes) {
  FlatGolden golden;
  for (const OptimizerRecord& record : optimizers()) {
    const std::string name(record.name);
    SCOPED_TRACE(name);
    const Json& own = golden.json.at("optimizers").at(name);
    Updater updater(options_of(name, own.at("options")), golden.flat(golden.json.at("weights")),
                    golden.begins(), golden.decays());
    bool clipped = false;
    for (size_t step = 0; step < own.at("updates").size(); ++step) {
      Doubles gradient = golden.flat(golden.json.at("gradients")[step]);
      double squares = 0;
      for (double g : gradient) squares += g * g;
      double clip = golden.json.at("max_norm").get<double>() / (std::sqrt(squares) + 1e-6);
      clipped |= clip < 1;
      // The sum of four tokens' gradients.
      for (double& g : gradient) g *= 4;
      updater.step(gradient, own.at("options").at("lr"), std::min(1.0, clip) / 4);
      Doubles expected = golden.flat(own.at("updates")[step]);
      ASSERT_EQ(updater.weights().size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(updater.weights()[i], expected[i], 1e-13) << "step " << step << ", " << i;
    }
    EXPECT_TRUE(clipped);
  }
}

TEST(Optimizers, KeepEveryBitOfAStepThatDoesNotCount) {
  FlatGolden golden;
  for (const OptimizerRecord& record : optimizers()) {
    SCOPED_TRACE(record.name);
    Updater updater({.name = std::string(record.name)}, golden.flat(golden.json.at("weights")),
                    golden.begins(), golden.decays());
    updater.step(golden.flat(golden.json.at("gradients")[0]), 0.1, 1);
    std::vector<Doubles> before = updater.all();
    for (double bad : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL})
      updater.step(Doubles(before[0].size(), bad), 0.1, bad, false);
    EXPECT_EQ(updater.all(), before);
    updater.step(golden.flat(golden.json.at("gradients")[1]), 0.1, 1);
    EXPECT_NE(updater.all(), before);
  }
}

// Of files that were written: a name may never change.
TEST(Optimizers, KeepSlotsUnderTheseNames) {
  auto names_of = [](const char* optimizer) {
    std::vector<std::string> names;
    for (const Slot& slot : make_optimizer({.name = optimizer})->slots("layers.0", {})) {
      EXPECT_EQ(slot.role, SlotRole::kOptimizer);
      EXPECT_TRUE(slot.saved);
      names.push_back(slot.name());
      names.push_back(slot.tensor_name("lm_head.weight"));
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of("adamw"),
            (Names{"exp_avg.layers.0", "optim.state.lm_head.weight.exp_avg", "exp_avg_sq.layers.0",
                   "optim.state.lm_head.weight.exp_avg_sq"}));
  EXPECT_EQ(names_of("sgd"),
            (Names{"momentum_buffer.layers.0", "optim.state.lm_head.weight.momentum_buffer"}));
  EXPECT_EQ(names_of("lion"), (Names{"exp_avg.layers.0", "optim.state.lm_head.weight.exp_avg"}));
}

}  // namespace
}  // namespace tessera
