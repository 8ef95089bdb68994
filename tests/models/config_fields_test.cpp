// Every key of a config.json against transformers (tools/goldens/config_goldens.py): what it
// changes there it changes here, or it is refused by name.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "autodiff/backward.h"
#include "backends/ref/interpreter.h"
#include "base/file.h"
#include "models/build_model.h"
#include "models/hugging_face_tensor.h"
#include "models/model_family.h"
#include "ops/composite/attention.h"
#include "ops/composite/dropout.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json json =
      Json::parse(read_file(cat(TESSERA_SOURCE_DIR, "/tests/goldens/config_fields.json")));
  return json;
}

// The weights of the script: a hash of name and element.
double weight(uint64_t seed, uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u + seed;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<double>(x >> 40) / 0x1p24 - 0.5;
}

std::vector<double> weights_of(const ModelConfig& config, const Parameter& p) {
  HuggingFaceTensor stored = hugging_face_tensor(config.model_type, p);
  uint64_t seed = 1469598103934665603u;
  for (char c : p.name) seed = (seed ^ static_cast<uint8_t>(c)) * 1099511628211u;
  auto rows = static_cast<uint64_t>(stored.shape[0]),
       columns = static_cast<uint64_t>(num_elements(stored.shape)) / rows;
  bool norm = stored.shape.size() == 1 && p.name.ends_with("weight");
  std::vector<double> values(rows * columns);
  for (uint64_t i = 0; i < rows * columns; ++i) {
    uint64_t at = stored.transposed ? i % columns * rows + i / columns : i;
    values[at] = weight(seed, i) + (norm ? 1 : 0);
  }
  return values;
}

struct Outcome {
  double loss = 0, gradient_norm = 0;
  std::vector<double> logits;
  std::vector<std::string> dropouts;  // "P [shape]" of each, sorted
};

ref::Feeds feeds_of(const ModelConfig& config, const ModelGraph& model) {
  ref::Feeds feeds;
  for (const Parameter& p : model.parameters) feeds[p.name] = {weights_of(config, p)};
  for (const char* name : {"tokens", "targets"}) {
    if (model.graph.find_input(name)) feeds[name] = {golden().at(name).get<std::vector<double>>()};
  }
  return feeds;
}

std::vector<std::string> dropouts_of(const Graph& g) {
  std::vector<std::string> found;
  for (const Node& node : g.nodes()) {
    const Shape& x = g.shape(node.inputs.empty() ? Value{0} : node.inputs[0]);
    if (const auto* drop = dynamic_cast<const Dropout*>(node.op.get()))
      found.push_back(cat(drop->p(), " ", to_string(x)));
    const auto* attention = dynamic_cast<const Attention*>(node.op.get());
    if (attention && attention->dropout().p > 0)
      found.push_back(cat(attention->dropout().p, " ", to_string(Shape{x[0], x[2], x[1], x[1]})));
  }
  std::ranges::sort(found);
  return found;
}

Outcome run(const ModelConfig& config) {
  auto length = std::ssize(golden().at("tokens"));
  Outcome outcome;
  outcome.dropouts = dropouts_of(build_model(config, 1, length, ModelHead::kTraining).graph);
  ModelGraph logits = build_model(config, 1, length, ModelHead::kLogits);
  outcome.logits = ref::run(logits.graph, feeds_of(config, logits)).outputs.at("logits")[0].data;

  ModelConfig plain = config;
  plain.resid_pdrop = plain.embd_pdrop = plain.attn_pdrop = 0;
  ModelGraph model = build_model(plain, 1, length, ModelHead::kTraining);
  Graph& g = model.graph;
  std::vector<Value> parameters;
  for (const Parameter& p : model.parameters) parameters.push_back(g.input_value(p.name));
  std::vector<Value> gradients = backward(g, g.outputs()[0].value, parameters);
  for (size_t i = 0; i < gradients.size(); ++i)
    g.update(cat("gradient.", model.parameters[i].name), gradients[i]);
  ref::Results results = ref::run(g, feeds_of(config, model));
  double tokens = results.outputs.at("token_count")[0].data[0], squares = 0;
  outcome.loss = results.outputs.at("loss_sum")[0].data[0] / tokens;
  for (const auto& [name, ranks] : results.updates) {
    for (double v : ranks[0].data) squares += v * v;
  }
  outcome.gradient_norm = std::sqrt(squares) / tokens;
  return outcome;
}

// What differs from the row of transformers; empty: nothing.
std::string difference(const Outcome& got, const Json& want) {
  std::string text;
  auto hold = [&](const char* what, double value, double expected, double bound) {
    if (!(std::abs(value - expected) <= bound * std::max(1.0, std::abs(expected))))
      text += cat(what, " ", value, ", not ", expected, "; ");
  };
  hold("loss", got.loss, want.at("loss").get<double>(), 3e-6);
  hold("norm of the gradient", got.gradient_norm, want.at("gradient_norm").get<double>(), 2e-5);
  size_t next = 0;
  for (size_t at : golden().at("shown_logits").get<std::vector<size_t>>()) {
    if (at < got.logits.size()) hold("logit", got.logits[at], want.at("logits").at(next++), 1e-5);
  }
  std::vector<std::string> dropouts;
  for (const Json& d : want.value("dropouts", Json::array()))
    dropouts.push_back(cat(d[0].get<double>(), " ", to_string(d[1].get<Shape>())));
  std::ranges::sort(dropouts);
  if (dropouts != got.dropouts)
    text += cat("dropouts ", join(got.dropouts, ", "), ", not ", join(dropouts, ", "));
  return text;
}

// As `train` and `plan` read it: a model whose windows end too early is refused there.
std::string refusal(const Json& config, ModelConfig& model) {
  try {
    model = parse_hugging_face_config(config.dump(), "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  auto length = std::ssize(golden().at("tokens"));
  if (longest_window(model).value_or(length) < length) return "--max_context_width";
  return "";
}

Json changed(Json base, const Json& change) {
  base.update(change);
  return base;
}

// A refusal says which key it is about, or, of shapes, which option.
bool names_the_key(const std::string& message, const Json& change) {
  if (message.find("--") != std::string::npos) return true;
  for (const auto& [key, value] : change.items()) {
    if (message.find(key) != std::string::npos) return true;
    if (value.is_object() && names_the_key(message, value)) return true;
  }
  return change.contains("hidden_size");  // an even head size
}

// Whether the changed keys are looked at at all: transformers wants even of those that change
// nothing that they are of their type.
bool unread(const Json& base, Json change) {
  for (Json& value : change) value = "anything";
  ModelConfig model;
  return refusal(changed(base, change), model).empty();
}

class ConfigFields : public testing::TestWithParam<std::string> {};

TEST_P(ConfigFields, ChangeWhatTheyChangeInTransformersOrAreRefused) {
  const Json& family = golden().at("families").at(GetParam());
  int computed = 0;
  for (const Json& row : family.at("rows")) {
    const Json& change = row.at("change");
    ModelConfig model;
    std::string message = refusal(changed(family.at("base"), change), model);
    if (!message.empty()) {
      EXPECT_TRUE(names_the_key(message, change)) << change << ": " << message;
      continue;
    }
    if (row.contains("fails")) {
      if (!unread(family.at("base"), change))
        ADD_FAILURE() << change << " is accepted, transformers fails: " << row.at("fails");
      continue;
    }
    ++computed;
    const Json& want = row.contains("same") ? family.at("result") : row;
    EXPECT_EQ(difference(run(model), want), "") << change;
    // Written down and read again it is the same model.
    EXPECT_EQ(parse_hugging_face_config(hugging_face_config_json(model), "written"), model)
        << change;
  }
  EXPECT_GE(computed, 50);
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& [name, rows] : golden().at("families").items()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, ConfigFields, testing::ValuesIn(families()),
                         [](const auto& name) { return name.param; });

// A family that transformers has is among them.
TEST(ConfigClasses, AreAllHeldAgainstTransformers) {
  for (const ModelFamily* family : kModelFamilies) {
    for (const HuggingFaceClass& kind : family->classes)
      EXPECT_TRUE(golden().at("families").contains(kind.model_type)) << kind.name;
  }
}

}  // namespace
}  // namespace tessera
