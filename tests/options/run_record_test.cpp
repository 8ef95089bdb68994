#include "options/run_record.h"

#include <gtest/gtest.h>

#include "options/option_record.h"
#include "tests/options/option_testing.h"

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

TEST(RunRecord, OptionsHoldNoSecrets) {
  RunConfig c;
  c.dataset = "https://bob:secret@host/d.txt?X-Amz-Signature=secret";
  c.tokenizer = "a?path@of:this#machine";
  c.dataset_mix = {"https://host/d.txt?key=secret=0.5", "https://host/e.txt=2", "f.txt=1"};
  const RunConfig masked = without_secrets(c);
  EXPECT_EQ(masked.dataset, "https://host/d.txt?...");
  EXPECT_EQ(masked.tokenizer, c.tokenizer);
  EXPECT_EQ(masked.dataset_mix, (std::vector<std::string>{"https://host/d.txt?...=0.5",
                                                          "https://host/e.txt=2", "f.txt=1"}));
  EXPECT_EQ(without_secrets(masked), masked);
  for (const auto& [name, value] : option_values(c)) expect_lacks(value, "secret");

  // Earlier versions recorded what was given.
  RunRecord record;
  record.options = c;
  const std::string old = to_json(record);
  EXPECT_EQ(run_record_from_json(old, "x").options.dataset, masked.dataset);
  record.options = masked;
  EXPECT_EQ(cat(shown_record(old, "x"), "\n"), to_json(record));

  // What was left out cannot be taken for the whole.
  for (const char* option :
       {"--dataset=https://host/d.txt?...", "--dataset_mix=https://host/d.txt?...=0.5"}) {
    expect_contains(option_testing::usage_error({option}), "?..");
    expect_contains(option_testing::usage_error({option}), "give the whole address");
  }
}

}  // namespace
}  // namespace tessera
