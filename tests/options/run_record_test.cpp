#include "options/run_record.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

TEST(RunRecord, TextThatIsNoRecordIsRefused) {
  auto refusal = [](const std::string& text) {
    return user_error([&] { run_record_from_json(text, "CK/run.json"); });
  };
  expect_contains(refusal("{"), "'CK/run.json' is not the record of a run: not JSON");
  expect_contains(refusal("{}"), "'step' not found");
  expect_contains(refusal(std::string(17 << 20, ' ')), "larger than 16 MiB");
  // What prints or copies it would overflow the stack.
  std::string deep = to_json(RunRecord());
  const std::string model = "\"model\": {";
  const std::string brackets = std::string(400'000, '[') + std::string(400'000, ']');
  deep.insert(deep.find(model) + model.size(), cat("\"zz\": ", brackets, ","));
  expect_contains(refusal(deep), "nested in more than 64 levels");
}

}  // namespace
}  // namespace tessera
