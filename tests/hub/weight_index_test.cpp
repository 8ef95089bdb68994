#include "hub/weight_index.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/checkpoint/checkpoint_fixture.h"

namespace tessera {
namespace {

void expect_refused(const std::string& json, const std::string& reason) {
  std::string message = user_error([&] { parse_weight_index(json, "here"); });
  expect_contains(message, "'here' is not a valid index of weights");
  expect_contains(message, reason);
}

TEST(WeightIndex, IsTheMapAndNothingElse) {
  WeightIndex index = parse_weight_index(R"({"metadata": {"total_size": 4, "more": [{}, null]},
      "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"},
      "weights": {"weight_map": {"c": 1}}, "later": true})",
                                         "here");
  EXPECT_EQ(index, (WeightIndex{{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}}));
  EXPECT_EQ(parse_weight_index(weight_index_json(index, 4), "here"), index);
}

TEST(WeightIndex, RefusesWhatLeadsOutOfTheDirectory) {
  for (const char* file : {"../model.safetensors", "/model.safetensors", "a/b.safetensors", "..",
                           "", "model.gguf", "../pytorch_model.bin", "a\\u0000.safetensors"}) {
    expect_refused(cat(R"({"weight_map": {"w": ")", file, R"("}})"),
                   "must be in a file of the same directory");
  }
}

TEST(WeightIndex, RefusesWhatIsNoIndex) {
  expect_refused("", "broken JSON");
  expect_refused("{\"weight_map\": {\"a\": \"b.safetensors\"}", "broken JSON at byte");
  expect_refused("[]", "not an object but an array");
  expect_refused("3", "not an object but a number");
  expect_refused("{}", "no 'weight_map'");
  expect_refused(R"({"weight_map": {}})", "or an empty one");
  expect_refused(R"({"weight_map": []})", "no 'weight_map'");
  expect_refused(R"({"weight_map": {"a": 3}})", "the file of tensor 'a' is a number");
  expect_refused(R"({"weight_map": {"a": {}}})", "the file of tensor 'a' is an object");
  expect_refused(R"({"weight_map": {"a": ["b"]}})", "the file of tensor 'a' is an array");
  expect_refused(R"({"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}})",
                 "tensor 'a' appears twice");
  expect_refused(R"({"weight_map": {"a": "b.safetensors"}, "weight_map": {}})",
                 "'weight_map' appears twice");
  expect_refused(std::string(100, '{') + "\"a\":", "broken JSON");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100; ++i) deep += "[";
  expect_refused(deep, "nested too deeply");
  expect_refused(cat(R"({"weight_map": {")", std::string(2000, 'x'), R"(": "b.safetensors"}})"),
                 "longer than 1024 bytes");
}

}  // namespace
}  // namespace tessera
